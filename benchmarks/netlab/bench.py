"""Measures the chosen configurations at every place, and writes rows, tables and chart."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.netlab.chart import chart_svg
from benchmarks.netlab.configurations import Configuration
from benchmarks.netlab.figures import figures
from benchmarks.netlab.job import Pace
from benchmarks.netlab.launch import Site, measure
from benchmarks.netlab.report import csv_text, report_text
from benchmarks.netlab.rows import Mode, Row, write_rows
from benchmarks.netlab.targets import outcomes
from gradwire.errors import ThresholdNotMet


def bench(
    *,
    sites: Sequence[Site],
    modes: Sequence[Mode],
    configurations: tuple[Configuration, ...],
    compute_seconds: float,
    pace: Pace,
    folder: Path,
    timeout_seconds: float,
    require_targets: bool,
) -> int:
    """Measure, write to `folder`, print the tables, and return 0.

    Rows of a place are written as soon as it is measured. Raises ThresholdNotMet where `require_targets` and a target
    is missed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    raw = folder / "rows.jsonl"
    raw.unlink(missing_ok=True)
    rows: list[Row] = []
    for mode in modes:
        for site in sites:
            print(f"{site.name}, {mode} compute ...", file=sys.stderr, flush=True)
            measured = measure(
                site,
                mode=mode,
                configurations=configurations,
                compute_seconds=compute_seconds,
                pace=pace,
                folder=folder,
                timeout_seconds=timeout_seconds,
            )
            write_rows(raw, measured)
            rows.extend(measured)
    print(write_report(rows, folder))
    missed = [outcome for outcome in outcomes(figures(rows)) if not outcome.met]
    if require_targets and missed:
        raise ThresholdNotMet(f"{len(missed)} targets were missed; see {folder / 'table.md'}")
    return 0


def write_report(rows: Sequence[Row], folder: Path) -> str:
    """Write table.md, rows.csv and chart.svg to `folder` and return the table."""
    folder.mkdir(parents=True, exist_ok=True)
    text = report_text(rows)
    (folder / "table.md").write_text(text)
    (folder / "rows.csv").write_text(csv_text(rows))
    (folder / "chart.svg").write_text(chart_svg(figures(rows)))
    return text
