"""Parses the lab's command line, moves into namespaces of its own where links are shaped, and runs one verb."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.netlab.bench import bench, write_report
from benchmarks.netlab.configurations import ALONE, SETS, TRAINED_ONLY, choose
from benchmarks.netlab.convergence import train
from benchmarks.netlab.emulated import LAYERS, WIDTH
from benchmarks.netlab.isolate import isolation, run_isolated
from benchmarks.netlab.job import Pace
from benchmarks.netlab.launch import Site
from benchmarks.netlab.loss_rows import TrainingJob
from benchmarks.netlab.network import kernel_congestion_control
from benchmarks.netlab.prediction_report import prediction_text
from benchmarks.netlab.rows import Row, read_rows
from gradwire.errors import EnvironmentNotFit, GradwireError, UsageError

# Set by this module alone, for the copy of itself that it starts inside the namespaces.
_INSIDE_VARIABLE = "NETLAB_INSIDE"


def main(arguments: Sequence[str]) -> int:
    """Run the lab and return its exit code: 4 where links cannot be shaped, 5 where a required target is missed."""
    options = _parser().parse_args(arguments)
    try:
        if options.link == "shaped" and not os.environ.get(_INSIDE_VARIABLE):
            return _start_inside(arguments)
        return int(options.run(options))
    except GradwireError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _start_inside(arguments: Sequence[str]) -> int:
    wrapper, reason = isolation()
    if wrapper is None:
        raise EnvironmentNotFit(
            f"skipped: this system does not let the lab have network namespaces of its own ({reason}). "
            "Run it as root, or allow unprivileged user namespaces, or measure without shaping: --link loopback"
        )
    command = ["env", f"{_INSIDE_VARIABLE}=1", sys.executable, "-m", "benchmarks.netlab", *arguments]
    return run_isolated(wrapper, command)


def _bench(options: argparse.Namespace) -> int:
    return bench(
        sites=_sites(options),
        modes=options.modes,
        configurations=tuple(row for row in choose(options.configurations) if row.name not in TRAINED_ONLY),
        compute_seconds=options.compute_seconds,
        pace=Pace(rounds=options.rounds, visit_seconds=options.visit_seconds, most_steps=options.most_steps),
        folder=options.out,
        timeout_seconds=options.timeout,
        require_targets=options.require_targets,
    )


def _convergence(options: argparse.Namespace) -> int:
    job = TrainingJob(
        configurations=tuple(row for row in choose(options.configurations) if row.name != ALONE),
        seeds=tuple(options.seeds),
        steps=options.steps,
        most_steps=options.most_steps,
        block_steps=options.block_steps,
        batch_size_per_gpu=options.batch_size,
        learning_rate=options.learning_rate,
        start_step=options.start_step,
        compute_seconds=options.compute_seconds,
    )
    for site in _sites(options):
        print(train(job, site, folder=options.out, timeout_seconds=options.timeout))
    return 0


def _sites(options: argparse.Namespace) -> list[Site]:
    own = kernel_congestion_control()
    if options.link == "loopback":
        if options.congestion_control:
            raise UsageError("--congestion-control needs links of the lab's own; loopback is taken as it is")
        return [Site(hosts=hosts, rate_mbit=None, congestion_control=own) for hosts in options.hosts]
    return [
        Site(hosts=hosts, rate_mbit=rate, congestion_control=options.congestion_control or own)
        for hosts in options.hosts
        for rate in options.rates
    ]


def _model(options: argparse.Namespace) -> int:
    rows = _read(options.rows)
    rates = [None if word == "loopback" else float(word) for word in options.fit]
    print(prediction_text(rows, fitted_rates=rates, compute_seconds=options.compute_seconds))
    return 0


def _report(options: argparse.Namespace) -> int:
    print(write_report(_read(options.rows), options.out))
    return 0


def _read(paths: Sequence[Path]) -> list[Row]:
    return [row for path in paths for row in read_rows(path)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.netlab", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)

    measure = verbs.add_parser("bench", help="step time, scaling efficiency and bytes of every configuration")
    measure.set_defaults(run=_bench)
    _add_link_options(measure, rates=[1000.0, 100.0], timeout=900.0)
    measure.add_argument("--modes", type=_words, default=["emulated"], help="emulated, real, or both with a comma")
    measure.add_argument(
        "--configurations", type=_words, default=["all"], help=f"names, patterns, or sets: {', '.join(SETS)}"
    )
    measure.add_argument("--compute-seconds", type=float, default=0.21, help="compute of an emulated step")
    measure.add_argument("--rounds", type=int, default=5, help="visits of each configuration, in turn")
    measure.add_argument("--visit-seconds", type=float, default=1.5, help="time of one visit, if two steps fit")
    measure.add_argument("--most-steps", type=int, default=6, help="steps of one visit at most")
    measure.add_argument("--require-targets", action="store_true", help="exit 5 where a target is missed")

    learn = verbs.add_parser("convergence", help="train to equal steps and to plain DDP's loss")
    learn.set_defaults(run=_convergence)
    _add_link_options(learn, rates=[100.0], timeout=3600.0)
    learn.add_argument("--configurations", type=_words, default=["methods"])
    learn.add_argument("--seeds", type=_counts, default=[1], help="with commas")
    learn.add_argument(
        "--steps", type=int, default=150, help="equal steps; plain DDP's loss there is the loss to reach"
    )
    learn.add_argument("--most-steps", type=int, default=300)
    learn.add_argument("--block-steps", type=int, default=10, help="steps of one turn, then an evaluation")
    learn.add_argument("--batch-size", type=int, default=4, help="windows of 64 bytes per rank")
    learn.add_argument("--learning-rate", type=float, default=1e-3)
    learn.add_argument("--start-step", type=int, default=0, help="of low-rank methods; torch's own needs 2 or more")
    learn.add_argument(
        "--compute-seconds", type=float, default=0.21, help="of a step's passes: what is computed faster is slept away"
    )

    again = verbs.add_parser("report", help="tables and chart again, from raw rows")
    again.set_defaults(run=_report, link=None)
    again.add_argument("rows", type=Path, nargs="+", help="rows.jsonl of one run or more")
    again.add_argument("--out", type=Path, default=Path("runs/netlab"))

    model = verbs.add_parser("model", help="the cost model beside raw rows, and when compression pays")
    model.set_defaults(run=_model, link=None)
    model.add_argument("rows", type=Path, nargs="+", help="rows.jsonl of one run or more")
    model.add_argument(
        "--fit",
        type=_words,
        default=["10000"],
        help="rates in Mb/s, or loopback, whose rows are fitted; others are held out",
    )
    model.add_argument("--compute-seconds", type=float, default=0.21, help="compute of the step that advice is for")
    return parser


def _add_link_options(parser: argparse.ArgumentParser, *, rates: list[float], timeout: float) -> None:
    parser.epilog = f"The emulated model: {LAYERS} layers of width {WIDTH}."
    parser.add_argument("--link", choices=("shaped", "loopback"), default="shaped")
    parser.add_argument("--rates", type=_numbers, default=rates, help="Mb/s, with commas")
    parser.add_argument("--congestion-control", help="TCP's: bbr, reno, ...; without it the kernel's own")
    parser.add_argument("--hosts", type=_counts, default=[2], help="numbers of hosts, with commas")
    parser.add_argument("--timeout", type=float, default=timeout, help="seconds that one launch may take")
    parser.add_argument("--out", type=Path, default=Path("runs/netlab"))


def _words(text: str) -> list[str]:
    return text.split(",")


def _numbers(text: str) -> list[float]:
    return [float(word) for word in text.split(",")]


def _counts(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]
