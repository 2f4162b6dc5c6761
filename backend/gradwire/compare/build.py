"""Builds the comparison: runs and their measurements -> one cell per backend and size, graded, with causes and fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from gradwire.compare import predict
from gradwire.compare.cause import causes_of, crowd_of
from gradwire.compare.format import percent, processes
from gradwire.compare.groups import Group, Made, figures_of, groups_of, rate_of, rounds_of, unfit
from gradwire.compare.like import Scaling, unlike, unlike_batch
from gradwire.compare.notes import notes_on
from gradwire.compare.situation import situation_of
from gradwire.documents.comparison_schema import Baseline, Cell, Comparison, Fit, Interval, Run
from gradwire.documents.measurement_schema import Measurement, TimeSplit
from gradwire.errors import UsageError
from gradwire.measure.efficiency import GradedEfficiency, graded_efficiency
from gradwire.measure.outliers import outliers
from gradwire.measure.quantiles import median
from gradwire.plan import Backend

SMALLEST_MEASURED = Baseline(kind="smallest-measured", num_gpus=None, throughput=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Against:
    """What a backend's efficiencies are against, and the run that others must be like.

    `group` is None where the baseline is a given number.
    """

    num_gpus: int
    rates: list[float]
    group: Group | None
    like: Measurement
    split: TimeSplit | None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rules:
    """What all cells of one comparison share; `recipe_sha256` None: recipes are not compared."""

    recipe_sha256: str | None
    scaling: Scaling


def build_comparison(
    recipe_name: str,
    recipe_sha256: str,
    scaling: Scaling,
    runs: Sequence[Made],
    *,
    baseline: Baseline = SMALLEST_MEASURED,
    recipes_are_alike: bool = False,
) -> Comparison:
    """Return the comparison of `runs`, in the order they were made, each with its measurement (None: it failed).

    Cells come in the order in which their first run was made; figures are medians over the repeats that finished.
    Each backend is compared with its own smallest measured size, whose efficiency is 1 and which has no grade; or with
    the given `baseline`. A cell that trained something else than its baseline keeps its figures and is not-comparable,
    with what differs; a cell without a finished run is failed, with its reason. The throughputs of the runs come from
    their measurements. `recipes_are_alike`: the caller found that recipes with other hashes train alike.

    Raises UsageError without a run, and where a measurement is not of its run: another backend, another number of
    processes.
    """
    if not runs:
        raise UsageError("nothing to compare: no run was made")
    # Where the global batch is fixed, it is reached by another batch per rank at each size: another recipe.
    rules = _Rules(recipe_sha256=None if recipes_are_alike or scaling == "strong" else recipe_sha256, scaling=scaling)
    measured = [(_with_throughput(run, measurement), measurement) for run, measurement in runs]
    groups = groups_of(measured)
    against = {group.backend: _against(groups, group.backend, baseline, rules) for group in groups}
    cells = [_cell(group, against[group.backend], rules) for group in groups]
    marked = _with_outliers(measured, groups)
    return Comparison(
        format_version=1,
        recipe_name=recipe_name,
        recipe_sha256=recipe_sha256,
        scaling=scaling,
        baseline=baseline,
        machines=sorted({found.hardware.fingerprint for _, found in runs if found is not None}),
        runs=[run for run, _ in marked],
        cells=cells,
        fits=_fits(groups, cells, against, scaling),
        notes=notes_on(cells, marked, baseline),
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


def _with_outliers(runs: Sequence[Made], groups: Sequence[Group]) -> list[Made]:
    far = {
        (group.backend, group.num_gpus, repeat)
        for group in groups
        if len(group.rates) == len(group.repeats) and all(group.rates)
        for repeat, is_far in zip(group.repeats, outliers(group.rates), strict=True)
        if is_far
    }
    return [
        (replace(run, is_outlier=(run.backend, run.num_gpus, run.repeat) in far), measurement)
        for run, measurement in runs
    ]


def _other_recipe(measurement: Measurement, rules: _Rules) -> list[str]:
    if rules.recipe_sha256 in (None, measurement.recipe_sha256):
        return []
    return [f"recipe: {measurement.recipe_sha256[:12]} against {str(rules.recipe_sha256)[:12]}"]


def _against(groups: Sequence[Group], backend: Backend, baseline: Baseline, rules: _Rules) -> _Against | None:
    fit = [
        group
        for group in groups
        if group.backend == backend
        and unfit(group, rules.scaling) is None
        and not _other_recipe(group.finished[0], rules)
    ]
    if not fit:
        return None
    smallest = min(fit, key=lambda group: group.num_gpus)
    like, split = smallest.finished[0], figures_of(smallest).time_split
    if baseline.num_gpus is not None and baseline.throughput is not None:
        rates = [baseline.throughput]
        return _Against(num_gpus=baseline.num_gpus, rates=rates, group=None, like=like, split=None)
    return _Against(num_gpus=smallest.num_gpus, rates=smallest.rates, group=smallest, like=like, split=split)


def _cell(group: Group, against: _Against | None, rules: _Rules) -> Cell:
    cell = figures_of(group)
    reason = unfit(group, rules.scaling)
    if not group.finished:
        return replace(cell, status="failed", reason=reason)
    mine = group.finished[0]
    crowd = crowd_of(situation_of(mine, scaling=rules.scaling))
    cell = replace(cell, noise=crowd)
    if reason is not None:
        return replace(cell, status="not-comparable", reason=reason)
    if against is None:
        return replace(cell, status="not-comparable", reason="; ".join(_other_recipe(mine, rules)))
    cell = replace(cell, baseline_num_gpus=against.num_gpus)
    differences = (
        unlike(mine.workload, against.like.workload, scaling=rules.scaling)
        or unlike_batch(mine, against.like, scaling=rules.scaling)
        or _other_recipe(mine, rules)
    )
    if differences:
        where = f"unlike its baseline on {processes(against.like.world.world_size)}: "
        return replace(cell, status="not-comparable", reason=where + "; ".join(differences))
    graded = graded_efficiency(
        against.rates,
        group.num_gpus,
        group.rates,
        baseline_n_gpus=against.num_gpus,
        pairs=[] if against.group is None else rounds_of(group, against.group),
        baseline_is_exact=against.group is None,
    )
    cell = replace(cell, speedup=graded.speedup, scaling_efficiency=graded.scaling_efficiency)
    if group is against.group:
        return replace(cell, causes=causes_of(cell.time_split, situation_of(mine, scaling=rules.scaling)))
    return _with_grade(cell, graded, mine, against, rules)


def _with_grade(cell: Cell, graded: GradedEfficiency, mine: Measurement, against: _Against, rules: _Rules) -> Cell:
    found = graded.interval
    noise = cell.noise
    if noise is None and graded.is_too_noisy and found is not None:
        noise = f"the interval goes from {percent(found.low)} to {percent(found.high)}, wider than a grade"
    grade = graded.grade if noise is None else "undecided"
    situation = situation_of(
        mine, scaling=rules.scaling, baseline_num_gpus=against.num_gpus, baseline_split=against.split
    )
    return replace(
        cell,
        interval=None
        if found is None
        else Interval(low=found.low, high=found.high, confidence=found.confidence, method=found.method),
        grade=grade,
        grade_basis=graded.basis,
        noise=noise,
        causes=causes_of(cell.time_split, situation, explains_loss=grade != "good"),
    )


def _fits(
    groups: Sequence[Group], cells: Sequence[Cell], against: dict[Backend, _Against | None], scaling: Scaling
) -> list[Fit]:
    """The fits of each backend; what the machine was too small for says nothing of larger machines, and is left out."""
    found = []
    for backend, baseline in against.items():
        points = [
            (group.num_gpus, rate)
            for group, cell in zip(groups, cells, strict=True)
            if group.backend == backend and cell.scaling_efficiency is not None
            if all(cause.kind != "crowded-machine" for cause in cell.causes)
            for measurement in group.finished
            if (rate := rate_of(measurement))
        ]
        if baseline is not None and points:
            found += predict.fits_of(
                backend,
                points,
                scaling=scaling,
                baseline_num_gpus=baseline.num_gpus,
                baseline_rate=median(baseline.rates),
            )
    return found
