"""Says for one recipe and world at which link speeds each compression method pays, and what to do on a given link."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from gradwire.documents.figures_schema import Figures
from gradwire.documents.plan_schema import Plan
from gradwire.documents.recipe_schema import Compression, Model
from gradwire.measure.communication_cost import (
    MEBIBYTE,
    GradientTensor,
    MethodCost,
    Step,
    Wire,
    advise,
    best_bucket_cap,
)
from gradwire.measure.method_costs import method_cost
from gradwire.recipe.model_shapes import parameter_count, weight_matrices

# A method has to save more than this share of the step: less is within what a measurement can tell.
_MARGIN = 0.02
# Forward takes a third of a step's compute: a backward pass multiplies twice where a forward pass does once.
_FORWARD_SHARE = 1 / 3
_CAPS = tuple(cap * MEBIBYTE for cap in (0.25, 1.0, 4.0, 16.0, 64.0, 256.0))
# 1 Mb/s to 1 Tb/s in bytes per second, ten to a decade.
_SPEEDS = tuple(10 ** (6 + tenths / 10) / 8 for tenths in range(61))


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodAdvice:
    """One method beside plain DDP.

    `payload_share` is its bytes over plain DDP's; `wins_below` the bits per second from which down its step is the
    shorter one (None: at no speed that was tried); `step_seconds` its step on the given link, at the best bucket size.
    """

    name: str
    compression: Compression
    payload_share: float
    wins_below: float | None
    step_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """What to do on the given link: `method` None means not to compress."""

    world_size: int
    gradient_bytes: int
    compute_seconds: float
    plain_seconds: float
    methods: tuple[MethodAdvice, ...]
    method: MethodAdvice | None


def candidates(compression: Compression) -> dict[str, Compression]:
    """Return the methods to consider, by name, those first that change least of what is learnt.

    The recipe's own options hold: its rank, its block size, its fraction.
    """
    rank = compression.matrix_approximation_rank

    def changed(**values: object) -> Compression:
        return msgspec.structs.replace(compression, **values)

    return {
        "bf16": changed(method="bf16"),
        "int8": changed(method="int8"),
        f"powersgd rank {rank}": changed(method="powersgd", wire_dtype=None),
        f"powersgd rank {rank}, bf16 wire": changed(method="powersgd", wire_dtype="bf16"),
        f"powersgd-alternating rank {rank}, bf16 wire": changed(
            method="powersgd-alternating", wire_dtype="bf16", warm_start=True
        ),
        "topk": changed(method="topk"),
    }


def model_step(model: Model, *, compute_seconds: float, bytes_per_element: int) -> Step:
    """Return one micro-step of `model`, its gradients in the order of a backward pass, at a pace of equal elements."""
    matrices = Counter(weight_matrices(model))
    a_layer = Counter(weight_matrices(msgspec.structs.replace(model, layers=model.layers + 1))) - matrices
    vectors = parameter_count(model) - sum(rows * columns * count for (rows, columns), count in matrices.items())
    layer = [*a_layer.elements(), (max(vectors // model.layers, 1), 1)]
    for shape, count in a_layer.items():
        matrices[shape] -= model.layers * count
    ends = list(matrices.elements())
    # The output projection's gradient is the first, unless the input embedding, the last, is the same.
    first = [] if model.tie_embeddings else [ends.pop(ends.index((model.vocab_size, model.hidden_size)))]
    shapes = [*first, *(shape for _ in range(model.layers) for shape in layer), *ends]
    total = sum(rows * columns for rows, columns in shapes)
    forward, seen, gradients = compute_seconds * _FORWARD_SHARE, 0, []
    for rows, columns in shapes:
        seen += rows * columns
        ready = forward + (compute_seconds - forward) * seen / total
        gradients.append(GradientTensor(rows=rows, columns=columns, ready_seconds=ready))
    return Step(compute_seconds=compute_seconds, gradients=tuple(gradients), bytes_per_element=bytes_per_element)


def build_advice(plan: Plan, model: Model, figures: Figures) -> Advice:
    """Return the advice for `plan`, whose model is `model`, on the link of `figures`."""
    recipe, world_size = plan.recipe, plan.batch.data_parallel_size
    element_bytes = 2 if recipe.training.precision == "bf16-true" else 4
    one = model_step(model, compute_seconds=figures.compute_seconds, bytes_per_element=element_bytes)
    step = one.after(plan.batch.gradient_accumulation - 1)
    known = {arithmetic.name: arithmetic for arithmetic in figures.arithmetic}
    chosen = {name: value for name, value in candidates(recipe.communication.compression).items() if name in known}
    plain = method_cost(Compression(), bytes_per_element=element_bytes)
    costs = [
        method_cost(
            compression,
            name=name,
            bytes_per_element=element_bytes,
            seconds_per_byte=known[name].seconds_per_byte,
            seconds_per_bucket=known[name].seconds_per_bucket,
        )
        for name, compression in chosen.items()
    ]
    wire = Wire(
        world_size=world_size, bytes_per_second=figures.bytes_per_second, latency_seconds=figures.latency_seconds
    )
    everywhere = advise(
        step,
        plain,
        costs,
        world_size=world_size,
        latency_seconds=figures.latency_seconds,
        caps=_CAPS,
        speeds=_SPEEDS,
        margin=_MARGIN,
    )
    plain_seconds = best_bucket_cap(step, plain, wire, caps=_CAPS)[1]
    methods = tuple(
        MethodAdvice(
            name=cost.name,
            compression=compression,
            payload_share=_payload(step, cost, world_size) / _payload(step, plain, world_size),
            wins_below=None if where.wins_below is None else where.wins_below * 8,
            step_seconds=best_bucket_cap(step, cost, wire, caps=_CAPS)[1],
        )
        for cost, compression, where in zip(costs, chosen.values(), everywhere, strict=True)
    )
    return Advice(
        world_size=world_size,
        gradient_bytes=step.gradient_bytes,
        compute_seconds=step.compute_seconds,
        plain_seconds=plain_seconds,
        methods=methods,
        method=_best(methods, plain_seconds),
    )


def _best(methods: Sequence[MethodAdvice], plain_seconds: float) -> MethodAdvice | None:
    """Return the first method, which changes least, that is as good as the fastest; None where none saves enough."""
    fastest = min((method.step_seconds for method in methods), default=plain_seconds)
    if fastest >= plain_seconds * (1 - _MARGIN):
        return None
    return next(method for method in methods if method.step_seconds <= fastest + _MARGIN * plain_seconds)


def _payload(step: Step, cost: MethodCost, world_size: int) -> float:
    return cost.payload_bytes(step.gradients, world_size)
