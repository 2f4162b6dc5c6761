"""Builds the comparison: runs and their measurements -> one cell per backend and size, with efficiency and grade."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradwire.compare.format import processes
from gradwire.compare.like import Scaling, unlike, unlike_batch
from gradwire.compare.notes import notes_on
from gradwire.documents.comparison_schema import Cell, Comparison, Run
from gradwire.documents.measurement_schema import Measurement
from gradwire.errors import UsageError
from gradwire.measure.efficiency import scaling_efficiency
from gradwire.measure.quantiles import median
from gradwire.plan import Backend


@dataclass(frozen=True, kw_only=True, slots=True)
class _Group:
    """The runs of one backend at one size; `finished` are the measurements of those that ended well."""

    backend: Backend
    num_gpus: int
    runs: list[Run]
    finished: list[Measurement]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Baseline:
    """The smallest measured size of a backend and its median throughput."""

    num_gpus: int
    rate: float
    measurement: Measurement


def build_comparison(
    recipe_name: str,
    recipe_sha256: str,
    scaling: Scaling,
    runs: Sequence[tuple[Run, Measurement | None]],
) -> Comparison:
    """Return the comparison of `runs`, in the order they were made, each with its measurement (None: it failed).

    Cells come in the order in which their first run was made; figures are medians over the repeats that finished.
    Each backend is compared with its own smallest measured size: its efficiency is 1 and it has no grade. A cell
    that trained something else than its baseline keeps its figures and is not-comparable, with what differs; a cell
    without a finished run is failed, with its reason. The throughputs of the runs come from their measurements.

    Raises UsageError without a run, and where a measurement is not of its run: another backend, another number of
    processes.
    """
    if not runs:
        raise UsageError("nothing to compare: no run was made")
    measured = [(_with_throughput(run, measurement), measurement) for run, measurement in runs]
    groups = _groups(measured)
    cells = []
    for group in groups:
        cells.append(_cell(group, _baseline(groups, group.backend, recipe_sha256, scaling), recipe_sha256, scaling))
    return Comparison(
        format_version=1,
        recipe_name=recipe_name,
        recipe_sha256=recipe_sha256,
        scaling=scaling,
        runs=[run for run, _ in measured],
        cells=cells,
        notes=notes_on(cells, measured),
    )


def _with_throughput(run: Run, measurement: Measurement | None) -> Run:
    if run.status == "failed":
        return replace(run, samples_per_second=None, tokens_per_second=None)
    if measurement is None:
        raise ValueError(f"{run.folder}: the run ended well but has no measurement")
    if (measurement.backend, measurement.world.world_size) != (run.backend, run.num_gpus):
        raise UsageError(
            f"{run.folder}: asked for {run.backend} on {run.num_gpus} processes, but this was measured with "
            f"{measurement.backend} on {measurement.world.world_size}"
        )
    return replace(
        run,
        samples_per_second=measurement.throughput.samples_per_second,
        tokens_per_second=measurement.throughput.tokens_per_second,
    )


def _groups(runs: Sequence[tuple[Run, Measurement | None]]) -> list[_Group]:
    groups: dict[tuple[str, int], _Group] = {}
    for run, measurement in runs:
        group = groups.setdefault(
            (run.backend, run.num_gpus), _Group(backend=run.backend, num_gpus=run.num_gpus, runs=[], finished=[])
        )
        group.runs.append(run)
        if run.status == "ok" and measurement is not None:
            group.finished.append(measurement)
    return list(groups.values())


def _rate(measurement: Measurement) -> float | None:
    """Tokens per second; sequences per second where no tokens were counted; None without a timed step."""
    throughput = measurement.throughput
    return throughput.tokens_per_second if throughput.timed_tokens else throughput.samples_per_second


def _unfit(group: _Group, scaling: Scaling) -> str | None:
    """Why the runs of a cell cannot go into an efficiency at all, whatever the baseline; None where they can."""
    if not group.finished:
        return "; ".join(dict.fromkeys(run.reason or "no reason was given" for run in group.runs))
    first = group.finished[0]
    for measurement in group.finished:
        if not _rate(measurement):
            return "; ".join(measurement.notes) or "no step was timed, or nothing was trained in the timed steps"
        differences = unlike(measurement.workload, first.workload) or unlike_batch(measurement, first, scaling=scaling)
        if differences:
            return "its repeats differ: " + "; ".join(differences)
    return None


def _other_recipe(measurement: Measurement, recipe_sha256: str, scaling: Scaling) -> list[str]:
    # A global batch that is fixed is reached by another batch per rank at each size: another recipe.
    if scaling == "strong" or measurement.recipe_sha256 == recipe_sha256:
        return []
    return [f"recipe: {measurement.recipe_sha256[:12]} against {recipe_sha256[:12]}"]


def _baseline(groups: Sequence[_Group], backend: Backend, recipe_sha256: str, scaling: Scaling) -> _Baseline | None:
    fit = [
        group
        for group in groups
        if group.backend == backend
        and _unfit(group, scaling) is None
        and not _other_recipe(group.finished[0], recipe_sha256, scaling)
    ]
    if not fit:
        return None
    smallest = min(fit, key=lambda group: group.num_gpus)
    return _Baseline(num_gpus=smallest.num_gpus, rate=_median_rate(smallest), measurement=smallest.finished[0])


def _median_rate(group: _Group) -> float:
    return median([rate for measurement in group.finished if (rate := _rate(measurement)) is not None])


def _cell(group: _Group, baseline: _Baseline | None, recipe_sha256: str, scaling: Scaling) -> Cell:
    measured = _figures(group)
    reason = _unfit(group, scaling)
    if not group.finished:
        return replace(measured, status="failed", reason=reason)
    if reason is not None:
        return replace(measured, status="not-comparable", reason=reason)
    mine = group.finished[0]
    if baseline is None:
        differences = _other_recipe(mine, recipe_sha256, scaling)
        return replace(measured, status="not-comparable", reason="; ".join(differences))
    measured = replace(measured, baseline_num_gpus=baseline.num_gpus)
    theirs = baseline.measurement
    differences = (
        unlike(mine.workload, theirs.workload, scaling=scaling)
        or unlike_batch(mine, theirs, scaling=scaling)
        or _other_recipe(mine, recipe_sha256, scaling)
    )
    if differences:
        against = f"unlike its baseline on {processes(baseline.num_gpus)}: "
        return replace(measured, status="not-comparable", reason=against + "; ".join(differences))
    rate = _median_rate(group)
    result = scaling_efficiency(baseline.rate, group.num_gpus, rate, baseline_n_gpus=baseline.num_gpus)
    return replace(
        measured,
        speedup=rate / baseline.rate,
        scaling_efficiency=result.scaling_efficiency,
        grade=None if group.num_gpus == baseline.num_gpus else result.grade,
    )


def _figures(group: _Group) -> Cell:
    """The cell's own figures, without those that need a baseline."""
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
        grade=None,
        final_loss=losses[-1] if losses else None,
        losses=list(losses),
        peak_memory_bytes=max((_peak_memory(measurement) for measurement in finished), default=None),
        mfu=_median([measurement.utilization.mfu for measurement in finished]),
    )


def _peak_memory(measurement: Measurement) -> int:
    on_device = measurement.memory.peak_device_allocated_bytes
    return measurement.memory.peak_process_bytes if on_device is None else on_device


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _median(values: Sequence[float | None]) -> float | None:
    known = _known(values)
    return median(known) if known else None
