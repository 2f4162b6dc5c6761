"""Says in a few sentences what a comparison found."""

from __future__ import annotations

from collections.abc import Sequence

from gradwire.compare.cause import cause_in_short
from gradwire.compare.format import name_of, percent, processes, rate, span
from gradwire.documents.comparison_schema import Cell, Comparison


def verdict(comparison: Comparison) -> str:
    """Return the finding in a few sentences; see `findings`."""
    return " ".join(findings(comparison))


def findings(comparison: Comparison) -> list[str]:
    """Return sentences, the most telling first: how each backend scales and why, who is fastest, and what failed.

    Scaling is told at the largest graded size, speed at the largest measured one. Where the machine is too noisy at
    that size, this comes before all else.
    """
    cells = comparison.cells
    measured = [cell for cell in cells if cell.tokens_per_second is not None or cell.samples_per_second is not None]
    if not measured:
        if all(cell.status == "failed" for cell in cells):
            return [f"Nothing was measured: {_all_of(len(cells))} failed."]
        return ["Nothing was timed: what ran was all warm-up; take more steps or fewer measurement.warmup_steps."]
    sentences = [_gate(cells), _scaling(cells), *_why(cells), _fastest(measured), _failures(cells)]
    return [sentence for sentence in sentences if sentence]


def standing(cell: Cell) -> str:
    """Return a cell's grade, with a * where it rests on one run, or in a word why it has none."""
    match cell.status:
        case "failed":
            return "failed"
        case "not-comparable":
            return "see below"
        case "ok":
            mark = "*" if cell.grade_basis == "one-run" else ""
            return f"{cell.grade}{mark}" if cell.grade else "baseline"


def _graded_at_largest(cells: Sequence[Cell]) -> list[Cell]:
    graded = [cell for cell in cells if cell.grade is not None and cell.scaling_efficiency is not None]
    largest = max((cell.num_gpus for cell in graded), default=0)
    return sorted(
        (cell for cell in graded if cell.num_gpus == largest), key=lambda cell: -(cell.scaling_efficiency or 0)
    )


def _gate(cells: Sequence[Cell]) -> str:
    noisy = [cell for cell in _graded_at_largest(cells) if cell.noise is not None]
    reasons = dict.fromkeys(str(cell.noise) for cell in noisy)
    if not noisy:
        return ""
    return f"This machine is too noisy for a verdict on {processes(noisy[0].num_gpus)}: {'; '.join(reasons)}."


def _scaling(cells: Sequence[Cell]) -> str:
    there = _graded_at_largest(cells)
    if not there:
        sizes = {cell.num_gpus for cell in cells if cell.status == "ok"}
        if len(sizes) > 1 or any(cell.status == "not-comparable" for cell in cells):
            return "No scaling efficiency: no size could be compared with a smaller one."
        return "No scaling efficiency: only one size was measured."
    baseline = there[0].baseline_num_gpus
    from_size = "" if baseline is None else f" from {baseline}"
    shares = ", ".join(f"{cell.backend} {_share(cell)}" for cell in there)
    return f"Scaling{from_size} to {processes(there[0].num_gpus)} reaches, of ideal: {shares}."


def _share(cell: Cell) -> str:
    between = "" if cell.interval is None else f", {span(cell.interval)}"
    on = ", one run" if cell.grade_basis == "one-run" else ""
    return f"{percent(cell.scaling_efficiency)} ({cell.grade}{between}{on})"


def _why(cells: Sequence[Cell]) -> list[str]:
    return [
        f"Why {cell.backend} is not better: {cause_in_short(cell.causes[0])}."
        for cell in _graded_at_largest(cells)
        if cell.grade != "good" and cell.causes and cell.causes[0].kind not in ("not-recorded", "crowded-machine")
    ]


def _fastest(measured: Sequence[Cell]) -> str:
    largest = max(cell.num_gpus for cell in measured)
    there = [cell for cell in measured if cell.num_gpus == largest]
    best = max(there, key=lambda cell: cell.tokens_per_second or cell.samples_per_second or 0)
    if len(there) == 1:
        return f"On {processes(largest)} {best.backend} trained {_throughput(best)}."
    return f"Fastest on {processes(largest)}: {best.backend} with {_throughput(best)}."


def _throughput(cell: Cell) -> str:
    if cell.tokens_per_second:
        return f"{rate(cell.tokens_per_second)} tokens per second"
    return f"{rate(cell.samples_per_second)} sequences per second"


def _failures(cells: Sequence[Cell]) -> str:
    failed = [name_of(cell) for cell in cells if cell.status == "failed"]
    if not failed:
        return ""
    return f"{len(failed)} of {len(cells)} {'cell' if len(cells) == 1 else 'cells'} failed: {', '.join(failed)}."


def _all_of(number: int) -> str:
    return "the only cell" if number == 1 else f"all {number} cells"
