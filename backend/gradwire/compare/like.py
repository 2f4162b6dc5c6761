"""Says whether two runs are alike enough for an efficiency to be computed from them, and names what differs."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Literal

from msgspec.structs import fields

from gradwire.documents.measurement_schema import Measurement, Workload

Scaling = Literal["weak", "strong"]

# Under strong scaling the global batch is fixed, so each rank's share of it must change with the size.
_FREE_UNDER_STRONG = frozenset({"batch_size_per_gpu", "gradient_accumulation"})


def scaling_of_runs(measurements: Iterable[Measurement]) -> Scaling:
    """Return strong where every measurement counted the same global batch and some another batch per rank; else weak.

    Where neither batch is fixed that is weak too: what differs is then said of each run that differs.
    """
    counted = [measurement for measurement in measurements if measurement.steps.timed]
    totals = {_batch(measurement) for measurement in counted}
    per_rank = {_batch(measurement) / measurement.world.world_size for measurement in counted}
    return "strong" if len(totals) == 1 and len(per_rank) > 1 else "weak"


def unlike(one: Workload, other: Workload, *, scaling: Scaling = "weak") -> list[str]:
    """Return what differs, `precision: fp32 against bf16-mixed`; empty where an efficiency may be computed.

    Under strong scaling the batch per rank and the accumulation may differ; `unlike_batch` looks at their product.
    """
    free = _FREE_UNDER_STRONG if scaling == "strong" else frozenset()
    names = [field.name for field in fields(Workload) if field.name not in free]
    return [
        f"{name}: {_words(getattr(one, name))} against {_words(getattr(other, name))}"
        for name in names
        if getattr(one, name) != getattr(other, name)
    ]


def unlike_batch(one: Measurement, other: Measurement, *, scaling: Scaling) -> list[str]:
    """Return how the counted batch differs, per rank (weak) or in all (strong); empty where it does not.

    What was counted decides, not what was asked for: a backend may train another batch than the recipe's.
    """
    match scaling:
        case "weak":
            mine, theirs = _batch(one) / one.world.world_size, _batch(other) / other.world.world_size
            what = "sequences per rank and step"
        case "strong":
            mine, theirs = _batch(one), _batch(other)
            what = "sequences per step over all ranks"
    return [] if mine == theirs else [f"{what}: {_number(mine)} against {_number(theirs)}"]


def _batch(measurement: Measurement) -> Fraction:
    return Fraction(measurement.throughput.timed_samples, measurement.steps.timed)


def _number(value: Fraction) -> str:
    return f"{float(value):g}"


def _words(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "on" if value else "off"
        case _:
            return str(value)
