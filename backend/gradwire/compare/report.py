"""Writes a comparison as one HTML page that needs no network, and as the other files of the output folder."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradwire.compare import format as readable
from gradwire.compare.chart import charts, standalone_png, standalone_svg
from gradwire.compare.draw import PART_COLOURS
from gradwire.compare.facts import facts_of
from gradwire.compare.verdict import findings, standing
from gradwire.compare.work import work_of
from gradwire.documents.comparison_schema import Cell, Comparison
from gradwire.documents.measurement_schema import Measurement
from gradwire.errors import EnvironmentNotFit
from gradwire.measure.document import document_text, write_bytes, write_text
from gradwire.measure.outliers import OUTLIER_RULE
from gradwire.measure.time_split import step_of

if TYPE_CHECKING:
    from jinja2 import Template

# More rows than this are a scroll, not a table.
_MOST_LOSS_ROWS = 25

_METHODS = {
    "paired-t": "Intervals: Student's t on the logarithms of the ratios within each round of runs.",
    "welch-t": "Intervals: Welch's t on the logarithms of the throughputs; the repeats were not made in rounds.",
    "one-sample-t": "Intervals: Student's t on the logarithms of the ratios to the given baseline.",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    cell: Cell
    standing: str
    css: str
    starts_backend: bool


def check_can_report() -> None:
    """Raise EnvironmentNotFit where a package that the report needs is missing; call it before hours of runs."""
    missing = []
    for package in ("jinja2", "matplotlib"):
        try:
            __import__(package)
        except ImportError:
            missing.append(package)
    if missing:
        raise EnvironmentNotFit(
            f"the report needs {' and '.join(missing)}, which this Python does not have: pip install 'gradwire[report]'"
        )


def write_comparison(
    folder: Path,
    comparison: Comparison,
    measurements: Sequence[Measurement],
    *,
    command: Sequence[str],
) -> list[Path]:
    """Write comparison.json, comparison.svg, comparison.png and report.html to `folder` and return their paths.

    `measurements` are those the comparison was built from; `command` is the command line that makes it again.
    Each file is written whole or not at all, the JSON first: it is there even where a package for the others is
    missing, which raises EnvironmentNotFit. A place that cannot be written raises UsageError.
    """
    paths = [folder / name for name in ("comparison.json", "comparison.svg", "comparison.png", "report.html")]
    write_text(paths[0], document_text(comparison, "comparison"))
    check_can_report()
    write_text(paths[1], standalone_svg(comparison))
    write_bytes(paths[2], standalone_png(comparison))
    write_text(paths[3], report_html(comparison, measurements, command=command))
    return paths


def report_html(comparison: Comparison, measurements: Sequence[Measurement], *, command: Sequence[str]) -> str:
    """Return the report as one HTML page: verdict, notes, table, charts, how it was measured, how to repeat it.

    Raises EnvironmentNotFit where jinja2 or matplotlib is missing.
    """
    check_can_report()
    from markupsafe import Markup

    cells, work = comparison.cells, work_of(comparison)
    explained = [cell for cell in cells if cell.causes]
    first = _explained_first(cells)
    loss_cells = [cell for cell in cells if cell.losses]
    loss_rows = _loss_rows(loss_cells)
    return _template().render(
        comparison=comparison,
        findings=findings(comparison),
        scaling={
            "weak": "Weak scaling: the batch per process is fixed.",
            "strong": "Strong scaling: the global batch is fixed.",
        }[comparison.scaling],
        rows=_rows(cells),
        work=work,
        against=_against(comparison),
        has_intervals=any(cell.interval is not None for cell in cells),
        has_one_run=any(cell.grade_basis == "one-run" for cell in cells),
        has_outliers=any(run.is_outlier for run in comparison.runs),
        outlier_rule=OUTLIER_RULE,
        methods=" ".join(dict.fromkeys(_METHODS[cell.interval.method] for cell in cells if cell.interval is not None)),
        split_parts=[
            (part.replace("_", " "), f"var(--{part.replace('_', '-')}, {colour})")
            for part, colour in PART_COLOURS.items()
        ],
        split_rows=[
            (cell, [getattr(cell.time_split, part) for part in PART_COLOURS], step_of(cell.time_split))
            for cell in cells
            if cell.time_split is not None
        ],
        explained=[cell for cell in explained if cell in first],
        explained_more=[cell for cell in explained if cell not in first],
        fits=[fit for fit in comparison.fits if fit.suits and len({cell.num_gpus for cell in cells}) > 1],
        has_mfu=any(cell.mfu is not None for cell in cells),
        unfit=[cell for cell in cells if cell.status != "ok"],
        # Drawn here, and free of what a stranger wrote except in an escaped label.
        charts=[
            {"caption": chart.caption, "svg": Markup(chart.svg), "is_tall": chart.is_tall}  # noqa: S704
            for chart in charts(comparison)
        ]
        if any(work.rate(cell) is not None for cell in cells)
        else [],
        loss_cells=loss_cells,
        loss_rows=loss_rows,
        losses_thinned=len(loss_rows) < max((len(cell.losses) for cell in loss_cells), default=0),
        facts=facts_of(comparison, measurements),
        command=shlex.join(command),
    )


def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    filters: dict[str, Callable[..., Any]] = {
        "rate": readable.rate,
        "times": readable.times,
        "percent": readable.percent,
        "loss": readable.loss,
        "memory": readable.memory,
        "seconds": readable.seconds,
        "name": readable.name_of,
        "span": readable.span,
        "unbroken": lambda text: text.replace(" %", "\u00a0%"),
    }
    environment.filters.update(filters)
    return environment.get_template("report.html.j2")


def _explained_first(cells: Sequence[Cell]) -> list[Cell]:
    """Of each backend the largest size that falls short: the others have much the same causes."""
    anything_graded = any(cell.grade is not None for cell in cells)
    short = [cell for cell in cells if cell.causes and (cell.grade not in (None, "good") or not anything_graded)]
    return list({cell.backend: cell for cell in sorted(short, key=lambda cell: cell.num_gpus)}.values())


def _against(comparison: Comparison) -> str:
    given = comparison.baseline
    if given.num_gpus is None:
        return "each backend against its own smallest measured size"
    return f"each against a given {readable.rate(given.throughput)} per second on {readable.processes(given.num_gpus)}"


def _rows(cells: Sequence[Cell]) -> list[_Row]:
    return [
        _Row(
            cell=cell,
            standing=standing(cell),
            css=cell.grade or ("failed" if cell.status == "failed" else "text"),
            starts_backend=number == 0 or cells[number - 1].backend != cell.backend,
        )
        for number, cell in enumerate(cells)
    ]


def _loss_rows(cells: Sequence[Cell]) -> list[tuple[int, list[float | None]]]:
    """Step (from 1) and each cell's loss there; the first, the last, and evenly spaced steps between."""
    longest = max((len(cell.losses) for cell in cells), default=0)
    stride = max(1, -(-longest // _MOST_LOSS_ROWS))
    steps = sorted({*range(0, longest, stride), longest - 1}) if longest else []
    return [(step + 1, [cell.losses[step] if step < len(cell.losses) else None for cell in cells]) for step in steps]
