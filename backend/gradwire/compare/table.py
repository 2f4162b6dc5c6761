"""Shows a comparison in a terminal: the table, what failed and why, the notes, and the verdict."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gradwire.compare.format import ABSENT, loss, memory, name_of, percent, rate, three_digits, times
from gradwire.compare.verdict import standing, verdict
from gradwire.documents.comparison_schema import Cell, Comparison

if TYPE_CHECKING:
    from rich.table import Table

_NARROWEST = 80
_GRADE_STYLES = {"good": "green", "acceptable": "yellow", "poor": "red"}


def comparison_text(comparison: Comparison, *, width: int = _NARROWEST, colour: bool = False) -> str:
    """Return the comparison as text for a terminal of `width` columns (80 at least), newline at the end.

    Without `colour` there is no control code in it, so it can be piped.
    """
    from rich.console import Console

    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=max(width, _NARROWEST),
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    console.print(_table(comparison.cells))
    for title, lines in (
        ("Failed or not comparable", _reasons(comparison.cells)),
        ("Read this before quoting", comparison.notes),
    ):
        if lines:
            console.print()
            console.print(f"{title}:")
            console.print(_bullets(lines))
    console.print()
    console.print(verdict(comparison))
    fixed = {"weak": "batch per process", "strong": "global batch"}[comparison.scaling]
    console.print(f"({comparison.scaling} scaling: the {fixed} is fixed; each backend against its own smallest size)")
    return "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())


def _table(cells: Sequence[Cell]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # One unit for the whole column, so that rows can be compared at a glance.
    slow = any((cell.step_seconds_median or 0) >= 10 for cell in cells)
    unit, per_second = ("s", 1) if slow else ("ms", 1000)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0, pad_edge=False)
    table.add_column("\nBackend", no_wrap=True)
    for heading in ("\nProcs", "\nTokens/s", "Speed-\nup", "Scaling\neff."):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("\nGrade", no_wrap=True)
    for heading in ("Final\nloss", "Peak\nmemory", f"Step, {unit}\nmedian/p95"):
        table.add_column(heading, justify="right", no_wrap=True)
    for number, cell in enumerate(cells):
        last_of_backend = number + 1 < len(cells) and cells[number + 1].backend != cell.backend
        table.add_row(
            cell.backend,
            str(cell.num_gpus),
            rate(cell.tokens_per_second),
            times(cell.speedup),
            percent(cell.scaling_efficiency),
            Text(standing(cell), style=_GRADE_STYLES.get(cell.grade or "", "red" if cell.status == "failed" else "")),
            loss(cell.final_loss),
            memory(cell.peak_memory_bytes),
            _step(cell, per_second),
            end_section=last_of_backend,
        )
    return table


def _step(cell: Cell, per_second: int) -> str:
    if cell.step_seconds_median is None or cell.step_seconds_p95 is None:
        return ABSENT
    return f"{three_digits(cell.step_seconds_median * per_second)}/{three_digits(cell.step_seconds_p95 * per_second)}"


def _reasons(cells: Sequence[Cell]) -> list[str]:
    return [f"{name_of(cell)} ({cell.status}): {cell.reason}" for cell in cells if cell.status != "ok"]


def _bullets(lines: Sequence[str]) -> Table:
    from rich.table import Table

    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=3, justify="right")
    grid.add_column(overflow="fold")
    for line in lines:
        grid.add_row("-", line)
    return grid
