"""Finds what a reader must know before quoting a comparison: noise, crowded machines, runs that differ."""

from __future__ import annotations

from collections.abc import Sequence

from gradwire.compare.format import name_of, percent, processes, rate, times
from gradwire.documents.comparison_schema import Baseline, Cell, Run
from gradwire.documents.measurement_schema import Measurement
from gradwire.measure.outliers import OUTLIER_RULE
from gradwire.measure.quantiles import median

CROWDED = "this shows the machine, not the backend"
# Repeats of one cell further apart than this say nothing about differences of that size.
_WIDE_SPREAD = 0.10
# Steps of one run are alike; where one in twenty takes longer than this many medians, something disturbs them.
_UNEVEN_STEPS = 1.2
# More than ideal by more than this is not noise.
_ABOVE_IDEAL = 1.05
# Backends that train the same thing end within rounding of each other.
_LOSSES_APART = 0.01
_ENOUGH_REPEATS = 3


def notes_on(cells: Sequence[Cell], runs: Sequence[tuple[Run, Measurement | None]], baseline: Baseline) -> list[str]:
    """Return the notes on a comparison, the gravest first; each is a sentence."""
    measured = [(run, measurement) for run, measurement in runs if measurement is not None and run.status == "ok"]
    return [
        *_crowded(measured),
        *_noisy(cells),
        *_unequal_machines(measured),
        *_other_losses(cells),
        *_given_baseline(baseline),
        *(_extrapolated_baseline(cells) if baseline.kind == "smallest-measured" else []),
        *_above_ideal(cells),
        *_few_repeats(cells),
        *_undecided(cells),
        *_outliers(measured),
        *_spread(cells),
        *_uneven_steps(cells),
        *_lost_repeats(cells, runs),
        *_from_runs(measured),
    ]


def _crowded(runs: Sequence[tuple[Run, Measurement]]) -> list[str]:
    crowds: dict[int, set[int]] = {}
    for _, measurement in runs:
        number, cores = measurement.world.processes_per_node, measurement.hardware.cpu_count
        if measurement.world.device == "cpu" and number > cores:
            crowds.setdefault(cores, set()).add(number)
    return [
        f"{_listed(sorted(numbers))} processes on {cores} {'core' if cores == 1 else 'cores'}: {CROWDED}"
        for cores, numbers in sorted(crowds.items())
    ]


def _noisy(cells: Sequence[Cell]) -> list[str]:
    return [
        f"{name_of(cell)}: this machine is too noisy for a verdict: {cell.noise}"
        for cell in cells
        if cell.noise is not None and cell.interval is not None and cell.noise.startswith("the interval")
    ]


def _listed(numbers: Sequence[int]) -> str:
    *first, last = [str(number) for number in numbers]
    return f"{', '.join(first)} and {last}" if first else last


def _unequal_machines(runs: Sequence[tuple[Run, Measurement]]) -> list[str]:
    notes = []
    machines = {measurement.hardware.fingerprint for _, measurement in runs}
    if len(machines) > 1:
        notes.append(f"the runs were made on {len(machines)} kinds of machine ({', '.join(sorted(machines))})")
    packages = sorted({package for _, measurement in runs for package in measurement.versions})
    for package in packages:
        found = {measurement.versions.get(package) or "none" for _, measurement in runs}
        if len(found) > 1:
            notes.append(f"the runs had different versions of {package}: {', '.join(sorted(found))}")
    return notes


def _other_losses(cells: Sequence[Cell]) -> list[str]:
    notes = []
    for size in dict.fromkeys(cell.num_gpus for cell in cells):
        losses = {cell.backend: cell.final_loss for cell in cells if cell.num_gpus == size and cell.final_loss}
        if losses and max(losses.values()) - min(losses.values()) > _LOSSES_APART * abs(min(losses.values())):
            listed = ", ".join(f"{backend} {loss:.4g}" for backend, loss in losses.items())
            notes.append(
                f"the final losses on {processes(size)} are more than {_LOSSES_APART:.0%} apart ({listed}): "
                "the backends did not train the same thing, so their speeds do not compare"
            )
    return notes


def _given_baseline(baseline: Baseline) -> list[str]:
    if baseline.num_gpus is None:
        return []
    return [
        f"the baseline is a given number, {rate(baseline.throughput)} per second on {processes(baseline.num_gpus)}; it "
        "was not measured here, and is taken as exact"
    ]


def _extrapolated_baseline(cells: Sequence[Cell]) -> list[str]:
    notes = []
    for backend in dict.fromkeys(cell.backend for cell in cells):
        sizes = [cell.num_gpus for cell in cells if cell.backend == backend]
        baselines = {cell.baseline_num_gpus for cell in cells if cell.backend == backend and cell.grade is not None}
        for size in baselines - {None, 1}:
            because = "the smallest asked for" if size == min(sizes) else "no smaller size could be used"
            notes.append(
                f"{backend}: the baseline is extrapolated: efficiencies are against {size} processes ({because}), so "
                "what one process would do is not known"
            )
    return notes


def _above_ideal(cells: Sequence[Cell]) -> list[str]:
    return [
        f"{name_of(cell)}: {percent(cell.scaling_efficiency)} is more than ideal; the baseline may have been slowed "
        "by something else (a cold cache, one thread, another job)"
        for cell in cells
        if cell.scaling_efficiency is not None and cell.scaling_efficiency > _ABOVE_IDEAL
    ]


def _few_repeats(cells: Sequence[Cell]) -> list[str]:
    fewest = min((cell.repeats for cell in cells if cell.repeats), default=_ENOUGH_REPEATS)
    if fewest >= _ENOUGH_REPEATS:
        return []
    advice = f"use --repeats {_ENOUGH_REPEATS} or more"
    if any(cell.grade_basis == "one-run" for cell in cells):
        return [f"grades with a * rest on one run and have no interval, so the noise is not known; {advice}"]
    return [f"fewer than {_ENOUGH_REPEATS} repeats, so the noise is not known; {advice}"]


def _undecided(cells: Sequence[Cell]) -> list[str]:
    straddling = [name_of(cell) for cell in cells if cell.grade == "undecided" and cell.noise is None]
    if not straddling:
        return []
    return [
        f"{', '.join(straddling)}: undecided, since the interval straddles two grades; more repeats would narrow it"
    ]


def _outliers(runs: Sequence[tuple[Run, Measurement]]) -> list[str]:
    far = [run for run, _ in runs if run.is_outlier]
    if not far:
        return []
    listed = ", ".join(f"{name_of(run)} repeat {run.repeat + 1} ({_beside(run, runs)})" for run in far)
    return [f"outliers, kept in every figure: {listed}; the rule: {OUTLIER_RULE}"]


def _beside(run: Run, runs: Sequence[tuple[Run, Measurement]]) -> str:
    mine = [other for other, _ in runs if (other.backend, other.num_gpus) == (run.backend, run.num_gpus)]
    rates = [other.tokens_per_second or other.samples_per_second or 0.0 for other in mine]
    share = (run.tokens_per_second or run.samples_per_second or 0.0) / median(rates)
    return f"{percent(abs(1 - share))} {'slower' if share < 1 else 'faster'} than the median"


def _spread(cells: Sequence[Cell]) -> list[str]:
    notes = []
    for cell in cells:
        slowest, middle, fastest = (
            cell.tokens_per_second_minimum,
            cell.tokens_per_second,
            cell.tokens_per_second_maximum,
        )
        if slowest is None or fastest is None or not middle:
            continue
        spread = (fastest - slowest) / middle
        if spread > _WIDE_SPREAD:
            notes.append(
                f"{name_of(cell)}: the repeats spread over {percent(spread)} of their median; "
                "smaller differences mean nothing here"
            )
    return notes


def _uneven_steps(cells: Sequence[Cell]) -> list[str]:
    uneven = [
        f"{name_of(cell)} {times(cell.step_seconds_p95 / cell.step_seconds_median)}"
        for cell in cells
        if cell.step_seconds_p95 is not None
        and cell.step_seconds_median
        and cell.step_seconds_p95 > _UNEVEN_STEPS * cell.step_seconds_median
    ]
    if not uneven:
        return []
    return [
        f"uneven steps (p95 over the median: {', '.join(uneven)}): another job on this machine, or work that differs "
        "from step to step"
    ]


def _lost_repeats(cells: Sequence[Cell], runs: Sequence[tuple[Run, Measurement | None]]) -> list[str]:
    notes = []
    for cell in cells:
        mine = [run for run, _ in runs if (run.backend, run.num_gpus) == (cell.backend, cell.num_gpus)]
        failed = [run for run in mine if run.status == "failed"]
        if cell.repeats and failed:
            reasons = "; ".join(dict.fromkeys(run.reason or "no reason was given" for run in failed))
            notes.append(f"{name_of(cell)}: {len(failed)} of {len(mine)} repeats failed ({reasons})")
    return notes


def _from_runs(runs: Sequence[tuple[Run, Measurement]]) -> list[str]:
    notes: dict[str, list[str]] = {}
    for run, measurement in runs:
        for note in measurement.notes:
            cells = notes.setdefault(note, [])
            if name_of(run) not in cells:
                cells.append(name_of(run))
    all_cells = {name_of(run) for run, _ in runs}
    return [
        f"{'every run' if len(cells) == len(all_cells) > 1 else ', '.join(cells)}: {note}"
        for note, cells in notes.items()
    ]
