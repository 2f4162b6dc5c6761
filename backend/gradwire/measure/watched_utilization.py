"""MFU of a command that was watched from outside: from what its model was seen to be, and what was given by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gradwire.documents.measurement_schema import Throughput, Utilization
from gradwire.documents.peak_schema import MatmulPeak
from gradwire.measure.matmul_peak import RunPeak
from gradwire.measure.rank_log import RankLog, RankShape, RankSubject
from gradwire.measure.utilization import Flops, Peak, peak_of, shares_of_peak, with_recomputation
from gradwire.recipe.model_flops import flops_formula, model_flops_per_token

_BY_HAND = "--flops-per-token"


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenFigures:
    """What the person says of the model and the device; None: what is seen, or known of the device, counts.

    `flops_per_token` are model FLOPs, forward and backward. `peak_flops` is one device's dense FLOP/s in the data type
    of the products; `measured_peak` stands in where the device's is not known.
    """

    flops_per_token: float | None = None
    layers: int | None = None
    hidden_size: int | None = None
    peak_flops: float | None = None
    measured_peak: MatmulPeak | None = None


def watched_utilization(
    logs: Sequence[RankLog],
    timed: Sequence[int],
    throughput: Throughput,
    device_name: str,
    given: GivenFigures,
) -> Utilization:
    """Return the utilization of one device over the `timed` steps (counted from 0) of the ranks in `logs`.

    FLOPs per token are 6 N + 12 L h s of the model that was seen, s being the mean sequence length of the tokens, or
    what was given. mfu and hfu are None, with the reason and what to pass, where a part is not known, and where the
    share comes out above 1; hfu also where nobody can tell whether the model computes activations again.
    """
    tokens = throughput.tokens_per_second_per_rank
    flops = _flops_of(logs, timed, given)
    subject = logs[0].facts.subject if logs[0].facts else None
    peak = _peak(logs[0], subject, device_name, given)
    no_rate = None
    if throughput.timed_seconds == 0:
        no_rate = "no step was timed"
    elif tokens is None:
        no_rate = "no tokens were seen, and FLOPs are counted per token"
    return shares_of_peak(flops, peak, tokens, no_rate=no_rate)


def _flops_of(logs: Sequence[RankLog], timed: Sequence[int], given: GivenFigures) -> Flops | str:
    if given.flops_per_token is not None:
        return Flops(per_token=given.flops_per_token, formula=f"given: {_BY_HAND}", hardware_per_token=None)
    facts = logs[0].facts
    if facts is None:
        return f"the run ended before its model was described; {_BY_HAND} gives its FLOPs per token"
    shape = facts.subject.shape
    if shape.reason is not None:
        return f"6 N + 12 L h s would not be what the model computes: {shape.reason}; {_BY_HAND} gives its FLOPs"
    if not all(log.steps[step].tokens is not None for log in logs for step in timed):
        return f"not every rank was given tokens, so some hold a part of the model only; {_BY_HAND} gives its FLOPs"
    layers, hidden_size = given.layers or shape.layers, given.hidden_size or shape.hidden_size
    if layers is None or hidden_size is None:
        return (
            "the model does not tell how many layers it has and how wide they are; pass --layers and --hidden-size, or "
            f"its FLOPs with {_BY_HAND}"
        )
    length = _mean_length(logs, timed)
    if length is None:
        return f"no sequences were seen, and attention depends on how long they are; {_BY_HAND} gives the FLOPs"
    return _counted(shape, facts.subject, layers, hidden_size, length)


def _counted(shape: RankShape, subject: RankSubject, layers: int, hidden_size: int, length: float) -> Flops:
    one, two = (
        model_flops_per_token(
            shape.parameters,
            layers=layers,
            hidden_size=hidden_size,
            sequence_length=whole,
            embedding_parameters=shape.embedding_parameters,
        )
        for whole in (math.floor(length), math.floor(length) + 1)
    )
    # Linear in the length, which as a mean need not be whole.
    flops = one + (two - one) * (length - math.floor(length))
    hardware = None
    if shape.output_parameters is not None:
        hardware = (
            with_recomputation(flops, output_parameters=shape.output_parameters)
            if subject.gradient_checkpointing
            else flops
        )
    mean = "" if length.is_integer() else ", a mean over the tokens"
    formula = flops_formula(
        shape.parameters,
        layers=layers,
        hidden_size=hidden_size,
        sequence_length=f"{length:,.10g}{mean}",
        embedding_parameters=shape.embedding_parameters,
    )
    return Flops(per_token=flops, formula=formula, hardware_per_token=hardware)


def _mean_length(logs: Sequence[RankLog], timed: Sequence[int]) -> float | None:
    """The mean over all tokens of the length of the sequence that each is in; of padded ones, with the padding."""
    weighted, tokens = 0.0, 0
    for step in timed:
        # Over all ranks: one may count the sequences, and each its slice of them.
        slots, samples = (sum(getattr(log.steps[step], name) or 0 for log in logs) for name in ("slots", "samples"))
        if samples:
            weighted, tokens = weighted + slots * slots / samples, tokens + slots
    return weighted / tokens if tokens else None


def _peak(log: RankLog, subject: RankSubject | None, device_name: str, given: GivenFigures) -> Peak | str:
    if given.peak_flops is not None:
        return Peak(flops_per_second=given.peak_flops, kind="given", source="given: --peak-flops")
    products = subject.products if subject else None
    if products is None:
        return "the data type of the matrix products could not be told; pass the device's peak with --peak-flops"
    if products == "fp8":
        return "some matrix products are fp8 and others are not, so no one peak is theirs; pass one with --peak-flops"
    threads = log.start.threads if log.start.device == "cpu" else None
    measured = None if given.measured_peak is None else RunPeak(peak=given.measured_peak, threads=threads)
    found = peak_of(log.start.device, device_name, products, measured)
    return f"{found}; --peak-flops gives one" if isinstance(found, str) else found
