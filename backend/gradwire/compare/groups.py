"""Groups runs into cells: those of one backend at one size, their rates, and what they measured themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from gradwire.compare.like import Scaling, unlike, unlike_batch
from gradwire.compare.situation import mean_split
from gradwire.documents.comparison_schema import Cell, Run
from gradwire.documents.measurement_schema import Measurement
from gradwire.measure.quantiles import median
from gradwire.plan import Backend

Made = tuple[Run, Measurement | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """The runs of one backend at one size.

    `finished` are the measurements of those that ended well, by repeat; `order` says for each of these when it was
    made, counted over all runs.
    """

    backend: Backend
    num_gpus: int
    runs: list[Run]
    finished: list[Measurement]
    repeats: list[int]
    order: list[int]

    @property
    def rates(self) -> list[float]:
        """The throughput of each finished run."""
        return [rate for measurement in self.finished if (rate := rate_of(measurement)) is not None]


def groups_of(runs: Sequence[Made]) -> list[Group]:
    """Return the groups in the order of their first runs; the finished runs of each by repeat."""
    groups: dict[tuple[str, int], Group] = {}
    for run, _ in runs:
        empty = Group(backend=run.backend, num_gpus=run.num_gpus, runs=[], finished=[], repeats=[], order=[])
        groups.setdefault((run.backend, run.num_gpus), empty).runs.append(run)
    numbered = sorted(enumerate(runs), key=lambda entry: entry[1][0].repeat)
    for order, (run, measurement) in numbered:
        if run.status == "ok" and measurement is not None:
            group = groups[run.backend, run.num_gpus]
            group.finished.append(measurement)
            group.repeats.append(run.repeat)
            group.order.append(order)
    return list(groups.values())


def rate_of(measurement: Measurement) -> float | None:
    """Return tokens per second; sequences per second where no tokens were counted; None without a timed step."""
    throughput = measurement.throughput
    if not measurement.steps.timed:
        # Whatever a foreign document says.
        return None
    # What only some steps could tell has no rate.
    has_tokens = throughput.timed_tokens > 0 and throughput.tokens_per_second is not None
    return throughput.tokens_per_second if has_tokens else throughput.samples_per_second


def unfit(group: Group, scaling: Scaling) -> str | None:
    """Return why a cell's runs cannot go into an efficiency at all, whatever the baseline; None where they can."""
    if not group.finished:
        return "; ".join(dict.fromkeys(run.reason or "no reason was given" for run in group.runs))
    first = group.finished[0]
    for measurement in group.finished:
        if not rate_of(measurement):
            return "; ".join(measurement.notes) or "no step was timed, or nothing was trained in the timed steps"
        differences = unlike(measurement.workload, first.workload) or unlike_batch(measurement, first, scaling=scaling)
        if differences:
            return "its repeats differ: " + "; ".join(differences)
    return None


def rounds_of(one: Group, other: Group) -> list[tuple[float, float]]:
    """Return the rates of the rounds in which both were measured, one and other; empty where there were none.

    Rounds: repeats of both by their number, and every run of one round was made before every run of the next
    (A B A B). Repeats made in another order (A A B B) share no round, whatever their numbers.
    """
    mine = {repeat: place for place, repeat in enumerate(one.repeats)}
    theirs = {repeat: place for place, repeat in enumerate(other.repeats)}
    common = [repeat for repeat in mine if repeat in theirs]
    made = [sorted((one.order[mine[repeat]], other.order[theirs[repeat]])) for repeat in common]
    if any(earlier[1] > later[0] for earlier, later in pairwise(made)):
        return []
    return [
        (rate_of(one.finished[mine[repeat]]) or 0.0, rate_of(other.finished[theirs[repeat]]) or 0.0)
        for repeat in common
    ]


def figures_of(group: Group) -> Cell:
    """Return the cell with its own figures, medians over its finished runs, and without those that need a baseline."""
    finished = group.finished
    tokens = _known([measurement.throughput.tokens_per_second for measurement in finished])
    losses = finished[0].losses if finished else []
    return Cell(
        backend=group.backend,
        num_gpus=group.num_gpus,
        status="ok",
        reason=None,
        repeats=len(finished),
        samples_per_second=_median([measurement.throughput.samples_per_second for measurement in finished]),
        tokens_per_second=_median(tokens),
        tokens_per_second_minimum=min(tokens, default=None),
        tokens_per_second_maximum=max(tokens, default=None),
        step_seconds_median=_median([measurement.step_seconds.median for measurement in finished]),
        step_seconds_p95=_median([measurement.step_seconds.p95 for measurement in finished]),
        baseline_num_gpus=None,
        speedup=None,
        scaling_efficiency=None,
        interval=None,
        grade=None,
        grade_basis=None,
        noise=None,
        time_split=mean_split([found.time_split for found in finished if found.time_split is not None]),
        causes=[],
        final_loss=losses[-1] if losses else None,
        losses=list(losses),
        peak_memory_bytes=max((_peak_memory(measurement) for measurement in finished), default=None),
        mfu=_median([measurement.utilization.mfu for measurement in finished]),
        workload=finished[0].workload if finished else None,
    )


def _peak_memory(measurement: Measurement) -> int:
    on_device = measurement.memory.peak_device_allocated_bytes
    return measurement.memory.peak_process_bytes if on_device is None else on_device


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _median(values: Sequence[float | None]) -> float | None:
    known = _known(values)
    return median(known) if known else None
