"""Scaling efficiency and its grade, from two throughputs and a number of GPUs, or from repeats of each."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple, SupportsIndex

from gradwire.errors import UsageError
from gradwire.measure.interval import Interval, against_number, ratio_interval, scaled
from gradwire.measure.quantiles import median

Grade = Literal["good", "acceptable", "poor"]
Judgement = Literal["good", "acceptable", "poor", "undecided"]
Basis = Literal["interval", "one-run"]

GOOD_ABOVE = 0.85
ACCEPTABLE_FROM = 0.70

# 0.85 that went through a few divisions is still 0.85; no measurement is exact to nine digits.
_DUST = 1e-9


class ScalingEfficiency(NamedTuple):
    """A share of ideal scaling (1.0 is ideal, more is possible) and what it is called."""

    scaling_efficiency: float
    grade: Grade


def scaling_efficiency(
    baseline_throughput: float,
    n_gpus: SupportsIndex,
    actual_throughput: float,
    *,
    baseline_n_gpus: SupportsIndex = 1,
) -> ScalingEfficiency:
    """Return actual_throughput / (baseline_throughput x n_gpus / baseline_n_gpus) and its grade.

    Both throughputs are totals over all ranks in one unit (tokens per second, say): the baseline's on
    `baseline_n_gpus` GPUs, the actual one on `n_gpus`. `scaling_efficiency(100, 8, 720)` is 0.9, good.
    Raises UsageError for anything that is not a finite number above zero, or not a whole number of GPUs.
    """
    baseline = _positive(baseline_throughput, "baseline throughput")
    actual = _positive(actual_throughput, "actual throughput")
    sizes = Fraction(_count(baseline_n_gpus, "baseline number of GPUs"), _count(n_gpus, "number of GPUs"))
    try:
        # Rounded once, at the end.
        efficiency = float(actual / baseline * sizes)
    except OverflowError:
        raise UsageError(
            f"the throughputs {actual_throughput!r} and {baseline_throughput!r} are too far apart to be of one kind"
        ) from None
    return ScalingEfficiency(efficiency, grade(efficiency))


def grade(efficiency: float) -> Grade:
    """Return good above 0.85, acceptable from 0.70 to 0.85 (both included), poor below.

    Raises UsageError for a value below 0 or not finite.
    """
    if not math.isfinite(efficiency) or efficiency < 0:
        raise UsageError(f"a scaling efficiency is a share of ideal, at least 0; got {efficiency!r}")
    if efficiency > GOOD_ABOVE and not _equal(efficiency, GOOD_ABOVE):
        return "good"
    if efficiency > ACCEPTABLE_FROM or _equal(efficiency, ACCEPTABLE_FROM):
        return "acceptable"
    return "poor"


@dataclass(frozen=True, kw_only=True, slots=True)
class GradedEfficiency:
    """A scaling efficiency from repeats: ratio of medians, its interval, and what it is called.

    `interval` is None where the throughput or its baseline was measured once: `basis` is then one-run, and the grade
    is that of the one ratio. `is_too_noisy`: undecided, and by an interval wider than the whole acceptable band.
    """

    scaling_efficiency: float
    speedup: float
    grade: Judgement
    basis: Basis
    interval: Interval | None
    is_too_noisy: bool


def graded_efficiency(
    baseline_throughputs: Sequence[float],
    n_gpus: SupportsIndex,
    actual_throughputs: Sequence[float],
    *,
    baseline_n_gpus: SupportsIndex = 1,
    pairs: Sequence[tuple[float, float]] = (),
    baseline_is_exact: bool = False,
) -> GradedEfficiency:
    """Return the scaling efficiency of repeats against repeats of the baseline, with a 95 % interval and a grade.

    `pairs`: the actual and the baseline's throughput of each round in which both were measured; two or more, and the
    interval is that of their ratios. `baseline_is_exact`: the baseline is one number from elsewhere. Raises UsageError
    as `scaling_efficiency` does.
    """
    baseline, actual = median(baseline_throughputs), median(actual_throughputs)
    point = scaling_efficiency(baseline, n_gpus, actual, baseline_n_gpus=baseline_n_gpus)
    for rate in (*baseline_throughputs, *actual_throughputs):
        _positive(rate, "throughput")
    if baseline_is_exact:
        found = against_number(actual_throughputs, baseline)
    elif len(pairs) > 1:
        found = ratio_interval([mine for mine, _ in pairs], [theirs for _, theirs in pairs], paired=True)
    else:
        found = ratio_interval(actual_throughputs, baseline_throughputs, paired=False)
    interval = None
    if found is not None:
        sizes = operator.index(baseline_n_gpus) / operator.index(n_gpus)
        interval = scaled(found, sizes, around=point.scaling_efficiency)
    judged = point.grade if interval is None else judgement(interval)
    return GradedEfficiency(
        scaling_efficiency=point.scaling_efficiency,
        speedup=actual / baseline,
        grade=judged,
        basis="one-run" if interval is None else "interval",
        interval=interval,
        is_too_noisy=judged == "undecided" and interval is not None and interval.width > GOOD_ABOVE - ACCEPTABLE_FROM,
    )


def judgement(interval: Interval) -> Judgement:
    """Return the grade that both ends of `interval` share; undecided where it straddles 0.85 or 0.70."""
    low, high = grade(interval.low), grade(interval.high)
    return low if low == high else "undecided"


def _equal(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_DUST)


def _positive(value: float, what: str) -> Fraction:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise UsageError(f"{what} must be a number above 0; got {value!r}") from None
    if not math.isfinite(number) or number <= 0:
        raise UsageError(f"{what} must be a finite number above 0; got {value!r}")
    return Fraction(number)


def _count(value: SupportsIndex, what: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"{what} must be a whole number, at least 1; got {value!r}") from None
    if number < 1:
        raise UsageError(f"{what} must be at least 1; got {value!r}")
    return number
