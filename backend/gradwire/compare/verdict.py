"""Says in a few sentences what a comparison found."""

from __future__ import annotations

from collections.abc import Sequence

from gradwire.compare.format import name_of, percent, processes, rate
from gradwire.compare.notes import CROWDED
from gradwire.documents.comparison_schema import Cell, Comparison


def verdict(comparison: Comparison) -> str:
    """Return the finding in a few sentences; see `findings`."""
    return " ".join(findings(comparison))


def findings(comparison: Comparison) -> list[str]:
    """Return sentences, the most telling first: how each backend scales, who is fastest, and what failed.

    Scaling is told at the largest graded size, speed at the largest measured one.
    """
    cells = comparison.cells
    measured = [cell for cell in cells if cell.tokens_per_second is not None or cell.samples_per_second is not None]
    if not measured:
        return [f"Nothing was measured: {_all_of(len(cells))} failed."]
    crowded = [f"But {note}." for note in comparison.notes if note.endswith(CROWDED)]
    sentences = [_scaling(cells), _fastest(measured), *crowded, _failures(cells)]
    return [sentence for sentence in sentences if sentence]


def standing(cell: Cell) -> str:
    """Return a cell's grade, or in a word why it has none."""
    match cell.status:
        case "failed":
            return "failed"
        case "not-comparable":
            return "see below"
        case "ok":
            return cell.grade or "baseline"


def _scaling(cells: Sequence[Cell]) -> str:
    graded = [cell for cell in cells if cell.grade is not None and cell.scaling_efficiency is not None]
    if not graded:
        sizes = {cell.num_gpus for cell in cells if cell.status == "ok"}
        if len(sizes) > 1 or any(cell.status == "not-comparable" for cell in cells):
            return "No scaling efficiency: no size could be compared with a smaller one."
        return "No scaling efficiency: only one size was measured."
    largest = max(cell.num_gpus for cell in graded)
    there = sorted(
        (cell for cell in graded if cell.num_gpus == largest),
        key=lambda cell: -(cell.scaling_efficiency or 0),
    )
    baseline = there[0].baseline_num_gpus
    shares = [f"{cell.backend} {percent(cell.scaling_efficiency)} ({cell.grade})" for cell in there]
    from_size = "" if baseline is None else f" from {baseline}"
    return f"Scaling{from_size} to {processes(largest)} reaches, of ideal: {', '.join(shares)}."


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
