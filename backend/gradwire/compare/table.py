"""Shows a comparison in a terminal: the table, what failed and why, the notes, and the verdict."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gradwire.compare.bars import Bar, bars_text
from gradwire.compare.cause import cause_in_short
from gradwire.compare.format import ABSENT, loss, memory, name_of, percent, processes, rate, span, three_digits, times
from gradwire.compare.verdict import standing, verdict
from gradwire.compare.work import Work, work_of
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
    console.print(_table(comparison.cells, work_of(comparison)))
    bars = [_bar(cell) for cell in comparison.cells if cell.grade is not None]
    if bars:
        console.print()
        console.print(bars_text(bars, width=console.width), end="", soft_wrap=True)
    for title, lines in (
        ("Failed or not comparable", _reasons(comparison.cells)),
        ("What takes the time", _causes(comparison.cells)),
        ("What larger sizes would give", _predictions(comparison)),
        ("Read this before quoting", comparison.notes),
    ):
        if lines:
            console.print()
            console.print(f"{title}:")
            console.print(_bullets(lines))
    console.print()
    console.print(verdict(comparison))
    fixed = {"weak": "batch per process", "strong": "global batch"}[comparison.scaling]
    against = "each backend against its own smallest size"
    if comparison.baseline.num_gpus is not None:
        given = f"{rate(comparison.baseline.throughput)} per second on {processes(comparison.baseline.num_gpus)}"
        against = f"each backend against a given baseline, {given}"
    console.print(f"({comparison.scaling} scaling: the {fixed} is fixed; {against})")
    return "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())


def _table(cells: Sequence[Cell], work: Work) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # One unit for the whole column, so that rows can be compared at a glance.
    slow = any((cell.step_seconds_median or 0) >= 10 for cell in cells)
    unit, per_second = ("s", 1) if slow else ("ms", 1000)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0, pad_edge=False)
    table.add_column("\nBackend", no_wrap=True)
    for heading in ("\nProcs", f"\n{work.heading}", "Speed-\nup", "Scaling\neff."):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("\nGrade", no_wrap=True)
    for heading in ("Final\nloss", "Peak\nmemory", f"Step, {unit}\nmedian/p95"):
        table.add_column(heading, justify="right", no_wrap=True)
    for number, cell in enumerate(cells):
        last_of_backend = number + 1 < len(cells) and cells[number + 1].backend != cell.backend
        table.add_row(
            cell.backend,
            str(cell.num_gpus),
            rate(work.rate(cell)),
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


def _bar(cell: Cell) -> Bar:
    interval = cell.interval
    return Bar(
        label=name_of(cell),
        share=cell.scaling_efficiency or 0.0,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        text=percent(cell.scaling_efficiency) if interval is None else span(interval),
    )


def _causes(cells: Sequence[Cell]) -> list[str]:
    """The two largest causes at each backend's largest size; the report has all of them."""
    largest = {cell.backend: cell for cell in sorted(cells, key=lambda cell: cell.num_gpus) if cell.status == "ok"}
    said = [
        f"{name_of(cell)}: {cause_in_short(cause)}"
        for cell in largest.values()
        for cause in cell.causes[:2]
        if cause.kind != "not-recorded"
    ]
    unknown = [name_of(cell) for cell in largest.values() if any(cause.kind == "not-recorded" for cause in cell.causes)]
    return [*said, f"{', '.join(unknown)}: no time split was recorded"] if unknown else said


def _predictions(comparison: Comparison) -> list[str]:
    """One line for each backend: what the best law that suits says; why there is none where all were refused."""
    lines = []
    for backend in dict.fromkeys(fit.backend for fit in comparison.fits):
        suited = [fit for fit in comparison.fits if fit.backend == backend and fit.suits]
        fitted = sorted((fit for fit in suited if fit.refused is None), key=lambda fit: fit.relative_error or 0.0)
        if fitted:
            best = fitted[0]
            said = ", ".join(
                f"{percent(found.scaling_efficiency)} on {found.num_gpus} ({found.grade})" for found in best.predictions
            )
            lines.append(
                f"{backend}: {said}; by the {best.law} law, off by {percent(best.relative_error)} where measured"
            )
        elif len({cell.num_gpus for cell in comparison.cells if cell.backend == backend}) > 1:
            lines.append(f"{backend}: no law was fitted: {suited[0].refused}" if suited else f"{backend}: no law suits")
    return lines


def _bullets(lines: Sequence[str]) -> Table:
    from rich.table import Table

    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=3, justify="right")
    grid.add_column(overflow="fold")
    for line in lines:
        grid.add_row("-", line)
    return grid
