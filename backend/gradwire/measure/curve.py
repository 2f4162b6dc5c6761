"""Grades a series of throughputs by size: baseline, intervals, outliers, fits; for numbers that came from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradwire.errors import UsageError
from gradwire.measure.efficiency import GradedEfficiency, graded_efficiency
from gradwire.measure.fits import Fit, Scaling, fit_laws
from gradwire.measure.outliers import outliers
from gradwire.measure.quantiles import median
from gradwire.measure.rows import Row


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """The repeats of one size: their median throughput, the outliers' places, and how they scale.

    `graded` is None for the baseline itself.
    """

    num_gpus: int
    throughput: float
    slowest: float
    fastest: float
    repeats: int
    outliers: tuple[str, ...]
    graded: GradedEfficiency | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """A series against its baseline: the smallest measured size, or a given number."""

    series: str | None
    baseline_num_gpus: int
    baseline_throughput: float
    baseline_is_given: bool
    points: tuple[Point, ...]
    fits: tuple[Fit, ...]


def curves_of(
    rows: Sequence[Row],
    *,
    scaling: Scaling,
    baseline: tuple[int, float] | None = None,
) -> list[Curve]:
    """Return one curve for each series of `rows`, in the order of its first row.

    `baseline` is a number of GPUs and the throughput there, from elsewhere; without it each series is against its own
    smallest size. Repeats are rows of one size; with a repeat column, rows of one repeat were measured in one round
    and are compared in pairs. Raises UsageError where a series has a repeat twice.
    """
    series: dict[str | None, list[Row]] = {}
    for row in rows:
        series.setdefault(row.series, []).append(row)
    return [_curve(name, mine, scaling, baseline) for name, mine in series.items()]


def _curve(name: str | None, rows: Sequence[Row], scaling: Scaling, given: tuple[int, float] | None) -> Curve:
    at: dict[int, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.num_gpus):
        at.setdefault(row.num_gpus, []).append(row)
    smallest = min(at)
    size, theirs = (smallest, at[smallest]) if given is None else (given[0], [])
    throughput = median([row.throughput for row in theirs]) if given is None else given[1]
    return Curve(
        series=name,
        baseline_num_gpus=size,
        baseline_throughput=throughput,
        baseline_is_given=given is not None,
        points=tuple(
            _point(mine, None if given is None and number == size else _graded(mine, theirs, size, throughput))
            for number, mine in at.items()
        ),
        fits=tuple(fit_laws([(row.num_gpus, row.throughput) for row in rows], scaling)),
    )


def _point(rows: Sequence[Row], graded: GradedEfficiency | None) -> Point:
    rates = [row.throughput for row in rows]
    return Point(
        num_gpus=rows[0].num_gpus,
        throughput=median(rates),
        slowest=min(rates),
        fastest=max(rates),
        repeats=len(rates),
        outliers=tuple(row.place for row, is_far in zip(rows, outliers(rates), strict=True) if is_far),
        graded=graded,
    )


def _graded(mine: Sequence[Row], theirs: Sequence[Row], size: int, throughput: float) -> GradedEfficiency:
    mine_by, theirs_by = _by_repeat(mine), _by_repeat(theirs)
    return graded_efficiency(
        [row.throughput for row in theirs] or [throughput],
        mine[0].num_gpus,
        [row.throughput for row in mine],
        baseline_n_gpus=size,
        pairs=[(rate, theirs_by[repeat]) for repeat, rate in mine_by.items() if repeat in theirs_by],
        baseline_is_exact=not theirs,
    )


def _by_repeat(rows: Sequence[Row]) -> dict[str, float]:
    """Throughput by repeat; rows without one are in no pair."""
    found: dict[str, float] = {}
    for row in rows:
        if row.repeat is None:
            continue
        if row.repeat in found:
            raise UsageError(f"{row.place}: repeat {row.repeat} of {row.num_gpus} GPUs is there twice")
        found[row.repeat] = row.throughput
    return found
