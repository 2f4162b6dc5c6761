"""The regression gate: which cells are slower than in an earlier comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradwire.compare.like import unlike
from gradwire.compare.work import Work
from gradwire.documents.comparison_schema import Cell, Comparison
from gradwire.errors import UsageError
from gradwire.measure.interval import Interval, ratio_interval
from gradwire.plan import Backend


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A cell of the earlier comparison beside its new throughput, in tokens (where one has none, samples) per second.

    `ratio` is new over old, from medians over repeats; None where it was not measured again, with the reason. `is_met`:
    at or above the threshold; a cell that was measured before and failed now has not met it. The 95 % interval is
    Welch's, None where either side ran once.
    """

    backend: Backend
    num_gpus: int
    before: float
    after: float | None
    ratio: float | None
    interval: Interval | None
    reason: str | None
    is_met: bool


def changes_of(before: Comparison, after: Comparison, *, fail_below: float) -> list[Change]:
    """Return a change for each cell that `before` measured and `after` tried, in the order of `before`.

    Raises UsageError where the two have no cell in common, and, with what differs, where a cell trained something else.
    """
    cells = {(cell.backend, cell.num_gpus): cell for cell in after.cells}
    pairs = [
        (cell, cells[cell.backend, cell.num_gpus])
        for cell in before.cells
        if (cell.backend, cell.num_gpus) in cells and (cell.tokens_per_second or cell.samples_per_second)
    ]
    if not pairs:
        raise UsageError("the baseline comparison measured none of these backends and sizes; there is nothing to gate")
    different = [
        f"{new.backend} on {new.num_gpus}: " + "; ".join(differences)
        for old, new in pairs
        if old.workload is not None and new.workload is not None and (differences := unlike(new.workload, old.workload))
    ]
    if different:
        raise UsageError("these cells trained something else than in the baseline comparison:\n" + "\n".join(different))
    return [_change(old, new, before, after, fail_below) for old, new in pairs]


def other_machine(before: Comparison, after: Comparison) -> str | None:
    """Return a warning where the two were measured on other kinds of machine; None where not."""
    if before.machines == after.machines:
        return None
    return (
        f"the baseline was measured on another kind of machine ({', '.join(before.machines)} against "
        f"{', '.join(after.machines)}), so a change may be the machine's"
    )


def _change(old: Cell, new: Cell, before: Comparison, after: Comparison, fail_below: float) -> Change:
    work = _work(old, new)
    earlier, later = work.rate(old) or 0.0, work.rate(new) or None
    ratio = later / earlier if later is not None and earlier else None
    interval = None
    if ratio is not None:
        interval = ratio_interval(_rates(new, after, work), _rates(old, before, work), paired=False)
    return Change(
        backend=old.backend,
        num_gpus=old.num_gpus,
        before=earlier,
        after=later,
        ratio=ratio,
        interval=interval,
        reason=new.reason,
        is_met=ratio is not None and ratio >= fail_below,
    )


def _work(old: Cell, new: Cell) -> Work:
    """What both count; of a cell that was not measured again, what was counted before."""
    has_tokens = old.tokens_per_second and (new.tokens_per_second or not new.samples_per_second)
    return Work(counted="tokens" if has_tokens else "samples")


def _rates(cell: Cell, comparison: Comparison, work: Work) -> Sequence[float]:
    return [
        rate
        for run in comparison.runs
        if (run.backend, run.num_gpus, run.status) == (cell.backend, cell.num_gpus, "ok") and (rate := work.rate(run))
    ]
