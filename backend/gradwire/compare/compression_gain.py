"""Predicts what compressing the gradients would bring on the link that a run was measured on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast

from gradwire.compare.situation import Situation
from gradwire.documents.measurement_schema import TimeSplit
from gradwire.documents.recipe_schema import Compression, Model
from gradwire.measure.advice import model_step
from gradwire.measure.communication_cost import Wire, best_bucket_cap, step_seconds
from gradwire.measure.method_costs import candidate_caps, method_cost
from gradwire.measure.time_split import step_of

CompressionMethod = Literal["bf16", "powersgd"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Gain:
    """The speed-up of the step by one method at most, since what it computes is not known; 1 or more."""

    method: CompressionMethod
    speedup: float


def gains_of(split: TimeSplit, situation: Situation, methods: tuple[CompressionMethod, ...]) -> list[Gain] | None:
    """Return what each of `methods` would bring; None where the link's speed or the model is not known.

    The cost model (`gradwire.measure.communication_cost`) is given the measured speed of the link, bytes over the
    seconds in collectives, and the measured compute. Of the measured step what it predicts for plain DDP is taken off
    and what it predicts for the method put in its place, so that an error it makes in both falls out.
    """
    model, rate, exposed = _model_of(situation), situation.link_bytes_per_second, split.exposed_communication
    if model is None or rate is None or exposed is None or situation.num_gpus < 2:
        return None
    workload = situation.workload
    width = 2 if workload.precision == "bf16-true" else 4
    micro_steps = workload.gradient_accumulation
    one = model_step(model, compute_seconds=split.compute / micro_steps, bytes_per_element=width)
    step = one.after(micro_steps - 1)
    wire = Wire(world_size=situation.num_gpus, bytes_per_second=rate, latency_seconds=0.0)
    plain = method_cost(Compression(), bytes_per_element=width)
    plain_seconds = step_seconds(step, plain, wire, bucket_cap_bytes=None)
    measured = step_of(split)
    found = []
    for method in methods:
        cost = method_cost(Compression(method=method), bytes_per_element=width)
        saved = plain_seconds - best_bucket_cap(step, cost, wire, caps=candidate_caps(step))[1]
        # No more than what was exposed can be saved, whatever the model says of it.
        left = measured - min(max(saved, 0.0), exposed)
        found.append(Gain(method=method, speedup=measured / left if left > 0 else 1.0))
    return found


def _model_of(situation: Situation) -> Model | None:
    words = re.fullmatch(
        r"(llama|gpt2) hidden (\d+) layers (\d+) heads (\d+)/(\d+) ffn (\d+) vocab (\d+)( tied)?",
        situation.workload.model,
    )
    length = situation.workload.sequence_length
    if words is None or length is None:
        return None
    hidden, layers, heads, key_value_heads, inner, vocab = (int(words[number]) for number in range(2, 8))
    return Model(
        family=cast("Literal['gpt2', 'llama']", words[1]),
        hidden_size=hidden,
        layers=layers,
        attention_heads=heads,
        key_value_heads=key_value_heads if words[1] == "llama" else None,
        intermediate_size=inner,
        vocab_size=vocab,
        sequence_length=length,
        tie_embeddings=words[8] is not None,
    )
