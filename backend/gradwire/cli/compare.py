"""`gradwire compare`: run one recipe on several backends and sizes, and write table, chart and report."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gradwire.cli.cells import Attempt, Comparing, next_attempt, run_attempt
from gradwire.cli.folders import held_folder, plain_name, reserved_folder
from gradwire.cli.gate import add_gate, check_kept, earlier_comparison, gate, given_baseline
from gradwire.cli.options import (
    BACKEND_NAMES,
    add_changes,
    add_json,
    add_recipe,
    add_several_runs,
    backend_list,
    comma_list,
    folder_path,
    positive_integer,
    refuse_twins,
)
from gradwire.cli.output import note, plain, say, say_json, screen_width
from gradwire.cli.progress import make_progress
from gradwire.cli.steps import load
from gradwire.errors import EnvironmentNotFit, RunFailed, UsageError

if TYPE_CHECKING:
    from gradwire.documents.comparison_schema import Baseline, Comparison

DESCRIPTION = """\
Run one recipe on each backend at each size, one run at a time, interleaved when
repeated (every cell once, then every cell again), and compare: throughput,
speed-up, scaling efficiency with its interval, grade, causes. A cell that fails
is shown with its reason and the rest still runs; Ctrl-C writes what was
measured so far. Exit code 1 when a cell failed; with --baseline, what is left
out (RECIPE, backends, sizes, repeats) is the earlier comparison's. All runs are
on this machine; those of `gradwire launch` on several compare with `report`."""
EXAMPLES = """\
  gradwire compare cpu/ddp --backends native,accelerate,deepspeed --num-gpus 1,2
  gradwire compare mine.yaml --backends native --num-gpus 1,2,4,8 --repeats 3
  gradwire compare zero3 --backends accelerate,deepspeed --num-gpus 8 --steps 30
  gradwire compare --baseline main/comparison.json --fail-below 0.95"""

# The Trainer trains on one of these; it is compared where it is asked for.
_USUAL = ("native", "accelerate", "deepspeed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """RECIPE, the two lists, and the changes."""
    parser.usage = "gradwire compare RECIPE [--backends B,B] --num-gpus N,N [options]"
    add_recipe(parser, optional=True)
    parser.add_argument(
        "--backends",
        type=backend_list,
        metavar="B,B",
        help=f"some of {', '.join(BACKEND_NAMES)} ({', '.join(_USUAL)})",
    )
    parser.add_argument("--num-gpus", type=_sizes, metavar="N,N", help="sizes: processes in all, such as 1,2,4,8")
    parser.add_argument("--repeats", type=positive_integer, metavar="K", help="runs of each cell (1)")
    parser.add_argument("--steps", type=positive_integer, metavar="N", help="training.max_steps for every run")
    parser.add_argument(
        "--out", type=folder_path, metavar="DIR", help="folder of the report (runs/compare-RECIPE, a new one)"
    )
    add_several_runs(parser)
    add_json(parser)
    add_gate(parser)
    add_changes(parser, sizes=False)


def run(arguments: argparse.Namespace) -> int:
    """Run every cell, write the comparison, print it; return 1 when a cell failed."""
    earlier, baseline = earlier_comparison(arguments), given_baseline(arguments)
    check_kept(arguments)
    _fill(arguments, earlier)
    if arguments.steps is not None:
        arguments.sets = [*arguments.sets, f"training.max_steps={arguments.steps}"]
    # Wrong in itself, the recipe is refused at once; wrong at one size, it is that cell that fails.
    name = load(arguments.recipe, arguments, num_gpus=None).name
    if arguments.out is not None:
        with held_folder(arguments.out):
            return _run_in(arguments.out, name, arguments, baseline, earlier)
    with reserved_folder(f"compare-{plain_name(name)}") as folder:
        return _run_in(folder, name, arguments, baseline, earlier)


def _run_in(
    folder: Path, name: str, arguments: argparse.Namespace, baseline: Baseline, earlier: Comparison | None
) -> int:
    comparing = Comparing(arguments=arguments, folder=folder)
    attempts = [
        Attempt(backend=backend, num_gpus=size, repeat=repeat)
        for repeat in range(arguments.repeats)
        for backend in arguments.backends
        for size in arguments.num_gpus
    ]
    try:
        with make_progress(f"{name} -> {folder}", attempts) as progress:
            while (attempt := next_attempt(attempts, comparing.results)) is not None:
                progress.begin(attempt, comparing.folder_of(attempt))
                result = run_attempt(attempt, comparing)
                comparing.results.append(result)
                progress.end(result)
    except (KeyboardInterrupt, SystemExit):
        if comparing.results:
            note(f"\nstopped: {len(comparing.results)} of {len(attempts)} runs were made and are kept")
            _finish(comparing, name, arguments, baseline, None)
        raise
    comparison, gated = _finish(comparing, name, arguments, baseline, earlier)
    failed = any(cell.status == "failed" for cell in comparison.cells)
    return gated or (RunFailed.exit_code if failed else 0)


def _fill(arguments: argparse.Namespace, earlier: Comparison | None) -> None:
    """Fill in what was left out: from the earlier comparison where there is one, else the defaults."""
    if earlier is not None:
        arguments.recipe = arguments.recipe or earlier.recipe_name
        arguments.backends = arguments.backends or list(dict.fromkeys(cell.backend for cell in earlier.cells))
        arguments.num_gpus = arguments.num_gpus or list(dict.fromkeys(cell.num_gpus for cell in earlier.cells))
        arguments.repeats = arguments.repeats or 1 + max(run.repeat for run in earlier.runs)
    missing = {"RECIPE": arguments.recipe, "--num-gpus": arguments.num_gpus}
    absent = [name for name, value in missing.items() if not value]
    if absent:
        raise UsageError(f"missing: {', '.join(absent)}\nmore: gradwire compare --help")
    arguments.backends = arguments.backends or list(_USUAL)
    arguments.repeats = arguments.repeats or 1


def _finish(
    comparing: Comparing,
    name: str,
    arguments: argparse.Namespace,
    baseline: Baseline,
    earlier: Comparison | None,
) -> tuple[Comparison, int]:
    """Build the comparison of the runs made, write it into the folder and print it; with the gate's exit code."""
    from gradwire.compare.build import build_comparison
    from gradwire.compare.like import scaling_of_runs
    from gradwire.compare.report import write_comparison
    from gradwire.compare.table import comparison_text

    measurements = [result.measurement for result in comparing.results if result.measurement is not None]
    comparison = build_comparison(
        name,
        comparing.recipe_sha256(),
        scaling_of_runs(measurements),
        [(result.run, result.measurement) for result in comparing.results],
        baseline=baseline,
    )
    try:
        written = write_comparison(comparing.folder, comparison, measurements, command=["gradwire", *arguments.words])
    except EnvironmentNotFit as error:
        note(f"no chart and no report: {error}")
        written = [comparing.folder / "comparison.json"]
    exit_code, gated = (0, None) if earlier is None else gate(earlier, comparison, arguments)
    if arguments.json:
        say_json(plain(comparison) if gated is None else {**plain(comparison), "gate": gated})
    else:
        colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        sys.stdout.write(comparison_text(comparison, width=screen_width(), colour=colour))
        say()
        for path in written:
            say(str(path))
    return comparison, exit_code


def _sizes(text: str) -> list[int]:
    sizes = [positive_integer(word) for word in comma_list(text)]
    refuse_twins(sizes, text)
    return sizes
