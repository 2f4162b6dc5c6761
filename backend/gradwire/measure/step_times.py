"""Summarises how long steps and micro-steps took, over steps and over ranks."""

from __future__ import annotations

from collections.abc import Sequence

from gradwire.documents.measurement_schema import MicroStepSeconds, StepSeconds
from gradwire.measure.quantiles import mean, median, quantile


def step_times(ranks: Sequence[Sequence[float]], *, timed: Sequence[int]) -> StepSeconds:
    """Return the summary of the `timed` steps, counted from 0; `ranks` has the seconds of every step on each rank.

    A step lasts as long as on its slowest rank. `rank_spread` is between the ranks' own medians: what a barrier or an
    all-reduce at the end of each step makes equal does not show in it. Figures are None without a timed step.
    """
    each = [max(seconds) for seconds in zip(*ranks, strict=True)]
    if not timed:
        return StepSeconds(median=None, p95=None, mean=None, minimum=None, maximum=None, each=each, rank_spread=None)
    seconds = [each[step] for step in timed]
    return StepSeconds(
        median=median(seconds),
        p95=quantile(seconds, 0.95),
        mean=mean(seconds),
        minimum=min(seconds),
        maximum=max(seconds),
        each=each,
        rank_spread=_spread([[rank[step] for step in timed] for rank in ranks]),
    )


def micro_step_times(ranks: Sequence[Sequence[float]]) -> MicroStepSeconds | None:
    """Return the summary of the timed micro-steps of each rank; None where a rank has none."""
    if not ranks or not all(ranks):
        return None
    together = [seconds for rank in ranks for seconds in rank]
    return MicroStepSeconds(
        median=median(together),
        p95=quantile(together, 0.95),
        maximum=max(together),
        rank_spread=_spread(ranks),
        count=len(together),
    )


def _spread(ranks: Sequence[Sequence[float]]) -> float:
    medians = [median(seconds) for seconds in ranks]
    return max(medians) - min(medians)
