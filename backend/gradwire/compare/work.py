"""Says what the throughputs of a comparison count: tokens, or samples where no run could tell tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gradwire.documents.comparison_schema import Cell, Comparison, Run


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What is counted, and its throughput over all ranks in a cell or a run."""

    counted: Literal["tokens", "samples"]

    @property
    def heading(self) -> str:
        """`Tokens/s`, for a column."""
        return f"{self.counted.capitalize()}/s"

    def rate(self, each: Cell | Run) -> float | None:
        """Return the throughput; None where nothing was timed."""
        return each.tokens_per_second if self.counted == "tokens" else each.samples_per_second

    def spread(self, cell: Cell, runs: Sequence[Run]) -> tuple[float, float] | None:
        """Return the throughputs of the slowest and of the fastest of a cell's repeats; None without one."""
        mine = [run for run in runs if (run.backend, run.num_gpus) == (cell.backend, cell.num_gpus)]
        rates = [rate for run in mine if (rate := self.rate(run)) is not None]
        return (min(rates), max(rates)) if rates else None


def work_of(comparison: Comparison) -> Work:
    """Return what the throughputs of `comparison` count."""
    has_tokens = any(cell.tokens_per_second for cell in comparison.cells)
    has_samples = any(cell.samples_per_second for cell in comparison.cells)
    return Work(counted="samples" if has_samples and not has_tokens else "tokens")
