"""The regression gate of `compare` and `report`: --baseline and --fail-below."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from gradwire.cli.options import file_path, share
from gradwire.cli.output import note
from gradwire.errors import ThresholdNotMet, UsageError

if TYPE_CHECKING:
    from gradwire.compare.gate import Change
    from gradwire.documents.comparison_schema import Baseline, Comparison


def add_gate(parser: argparse.ArgumentParser) -> None:
    """--baseline and --fail-below; --baseline-throughput and --baseline-num-gpus."""
    group = parser.add_argument_group("what to hold it against")
    group.add_argument(
        "--baseline", type=file_path, metavar="FILE", help="comparison.json of an earlier comparison, for --fail-below"
    )
    group.add_argument(
        "--fail-below",
        type=share,
        metavar="X",
        help="exit with 5 when a cell's throughput is below X times that of --baseline: 0.95, or 95%%",
    )
    group.add_argument(
        "--baseline-throughput",
        type=float,
        metavar="T",
        help="efficiencies against T tokens per second in all (default: the smallest size of each backend)",
    )
    group.add_argument("--baseline-num-gpus", type=int, metavar="M", help="processes that T was measured on (1)")


def given_baseline(arguments: argparse.Namespace) -> Baseline:
    """Return what efficiencies are against; raises UsageError where the options contradict each other."""
    from gradwire.compare.build import SMALLEST_MEASURED
    from gradwire.documents.comparison_schema import Baseline

    throughput, size = arguments.baseline_throughput, arguments.baseline_num_gpus
    if throughput is None:
        if size is not None:
            raise UsageError("--baseline-num-gpus needs --baseline-throughput, the throughput on that many")
        return SMALLEST_MEASURED
    if not 0 < throughput < float("inf"):
        raise UsageError(f"--baseline-throughput {throughput:g} is not a number above 0")
    if size is not None and size < 1:
        raise UsageError(f"--baseline-num-gpus {size} is not a whole number of at least 1")
    return Baseline(kind="given", num_gpus=1 if size is None else size, throughput=throughput)


def earlier_comparison(arguments: argparse.Namespace) -> Comparison | None:
    """Return the comparison of --baseline, None without; raises UsageError for half of the two options."""
    from gradwire.documents.comparison_schema import Comparison
    from gradwire.measure.document import read_document

    if arguments.baseline is None:
        if arguments.fail_below is not None:
            raise UsageError("--fail-below needs --baseline FILE, the comparison.json to hold this one against")
        return None
    if arguments.fail_below is None:
        raise UsageError("--baseline FILE needs --fail-below X, such as 0.95")
    return read_document(arguments.baseline, "comparison", Comparison)


def check_kept(arguments: argparse.Namespace) -> None:
    """Raise UsageError where the comparison in --out would take the place of the one that it is held against."""
    if arguments.out is None or arguments.baseline is None:
        return
    written = arguments.out / "comparison.json"
    if written.exists() and arguments.baseline.exists() and written.samefile(arguments.baseline):
        raise UsageError(
            f"--out {arguments.out}: its comparison.json is the --baseline, and the new one would take its place; "
            "give --out another folder"
        )


def gate(before: Comparison, after: Comparison, arguments: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the gate as plain data, and say on stderr how its cells changed."""
    from gradwire.compare.gate import changes_of, other_machine

    changes = changes_of(before, after, fail_below=arguments.fail_below)
    warning = other_machine(before, after)
    if warning is not None:
        note(f"gradwire: {warning}")
    below = [change for change in changes if not change.is_met]
    document = {
        "baseline": str(arguments.baseline),
        "fail_below": arguments.fail_below,
        "met": not below,
        "cells": [_plain(change) for change in changes],
    }
    limit = f"{arguments.fail_below:.0%}"
    if below:
        note(f"gradwire: {len(below)} of {_cells(len(changes))} below {limit} of {arguments.baseline}:")
    else:
        note(f"gate: {_cells(len(changes))} at {limit} or more of {arguments.baseline}:")
    for change in below or changes:
        note(f"  {_words(change, arguments.fail_below)}")
    return ThresholdNotMet.exit_code if below else 0, document


def _cells(number: int) -> str:
    return "1 cell" if number == 1 else f"{number} cells"


def _words(change: Change, fail_below: float) -> str:
    from gradwire.compare.format import percent, rate

    name = f"{change.backend} on {change.num_gpus}"
    if change.ratio is None:
        return f"{name}: was {rate(change.before)} per second, now not measured: {change.reason or 'it failed'}"
    words = f"{name}: {percent(change.ratio)}, {rate(change.before)} -> {rate(change.after)} per second"
    if change.interval is None:
        return f"{words} (one run each; the noise is not known)"
    between = f"{percent(change.interval.low)} to {percent(change.interval.high)}"
    is_certain = change.interval.low >= fail_below if change.is_met else change.interval.high < fail_below
    doubt = "" if is_certain else "; within the noise"
    return f"{words} ({between}{doubt})"


def _plain(change: Change) -> dict[str, Any]:
    interval = change.interval
    return {
        "backend": change.backend,
        "num_gpus": change.num_gpus,
        "before": change.before,
        "after": change.after,
        "ratio": change.ratio,
        "interval": None
        if interval is None
        else {"low": interval.low, "high": interval.high, "confidence": interval.confidence},
        "reason": change.reason,
        "met": change.is_met,
    }
