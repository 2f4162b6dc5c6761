"""`gradwire report`: a comparison of runs that were measured already."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from gradwire.cli.gate import add_gate, check_kept, earlier_comparison, gate, given_baseline
from gradwire.cli.options import add_json, existing_path, file_path, folder_path
from gradwire.cli.output import plain, say, say_json, screen_width

DESCRIPTION = """\
Compare runs that exist: measurement.json files, or folders that contain them.
Runs of one backend and size are repeats. Runs that trained something else than
the others are refused, with what differs."""
EXAMPLES = """\
  gradwire report runs/compare-cpu-ddp
  gradwire report runs/a runs/b/measurement.json --html report.html
  gradwire report today/ --baseline main/comparison.json --fail-below 0.95"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """RUN..., where to write, and the gate."""
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        type=existing_path,
        help="a measurement.json, or a folder with some in it or below it",
    )
    parser.add_argument("--html", type=file_path, metavar="FILE", help="write the report as one page to FILE")
    parser.add_argument(
        "--out",
        type=folder_path,
        metavar="DIR",
        help="write comparison.json, the charts (SVG, PNG) and report.html to DIR",
    )
    add_json(parser)
    add_gate(parser)


def run(arguments: argparse.Namespace) -> int:
    """Build the comparison, write what was asked for and print it; return the gate's exit code."""
    from gradwire.compare.build import build_comparison
    from gradwire.compare.gather import find_measurements, gather
    from gradwire.compare.report import report_html, write_comparison
    from gradwire.compare.table import comparison_text
    from gradwire.measure.document import check_target, write_text

    earlier, baseline = earlier_comparison(arguments), given_baseline(arguments)
    check_kept(arguments)
    page = arguments.html if arguments.html is not None else arguments.out and arguments.out / "report.html"
    beside = Path() if page is None else page.parent
    files = find_measurements(arguments.runs)
    inputs = [*files, *([] if arguments.baseline is None else [arguments.baseline])]
    if arguments.html is not None:
        check_target(arguments.html, what="a report", suffixes=(".html", ".htm"), inputs=inputs)
    if arguments.out is not None:
        check_target(arguments.out / "comparison.json", what="a comparison", suffixes=(".json",), inputs=inputs)
    scaling, runs = gather(files, beside=beside)
    measurements = [measurement for _, measurement in runs if measurement is not None]
    first = measurements[0]
    comparison = build_comparison(
        first.recipe_name, first.recipe_sha256, scaling, runs, baseline=baseline, recipes_are_alike=True
    )
    command = ["gradwire", *arguments.words]
    written = []
    if arguments.out is not None:
        written += write_comparison(arguments.out, comparison, measurements, command=command)
    if arguments.html is not None:
        write_text(arguments.html, report_html(comparison, measurements, command=command))
        written.append(arguments.html)
    exit_code, gated = (0, None) if earlier is None else gate(earlier, comparison, arguments)
    if arguments.json:
        say_json(plain(comparison) if gated is None else {**plain(comparison), "gate": gated})
        return exit_code
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    sys.stdout.write(comparison_text(comparison, width=screen_width(), colour=colour))
    for path in written:
        say(str(path))
    return exit_code
