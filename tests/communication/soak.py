"""Trains a small model again and again in one world and ends; tests start it, and it is a command of its own.

    python -m tests.communication.soak --launches 5 --runs 50 --steps 50 --ranks 2

starts 5 worlds one after the other, each of which trains 50 runs of 50 steps, with seven buckets, with unused
parameters and after a resume in turn, and says how many ended cleanly. With `--log FILE` the first rank adds a line
to it after each run.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.communication.world import join_world, leave_world, start_ranks, wait_for

VARIANTS = ("seven buckets", "unused parameters", "resumed")
METHODS = ("powersgd", "powersgd-alternating", "int8", "topk", "bf16", "local-sgd", "local-sgd-int8", "fp16")


def train_all(arguments: argparse.Namespace) -> None:
    """Be one rank: train every run, check after each that the ranks are identical, leave."""
    join_world(timeout=arguments.timeout)
    import torch

    torch.set_num_threads(1)
    for number in range(arguments.runs):
        variant, turn = VARIANTS[number % len(VARIANTS)], number // len(VARIANTS)
        method, started = arguments.methods[turn % len(arguments.methods)], time.monotonic()
        train(method, variant, arguments)
        if arguments.log is not None and os.environ["RANK"] == "0":
            with arguments.log.open("a", encoding="utf-8") as log:
                log.write(f"run {number + 1}: {method}, {variant}, {time.monotonic() - started:.1f} s\n")
    leave_world()


def train(method: str, variant: str, arguments: argparse.Namespace) -> None:
    import torch.distributed as dist

    from tests.communication.models import Run, assert_ranks_identical, settings

    unused = variant == "unused parameters"
    run = Run(settings(method), find_unused_parameters=unused)
    skip = (lambda step: frozenset({step % 7, dist.get_rank()})) if unused else None
    half = arguments.steps // 2
    run.train(0, half, skip=skip)
    if dist.get_rank() == arguments.kill_rank:
        os.kill(os.getpid(), signal.SIGKILL)
    if variant == "resumed":
        checkpoint = run.save()
        run.communication.close()
        run = Run(settings(method))
        run.load(checkpoint)
    run.train(half, arguments.steps, skip=skip)
    assert_ranks_identical(run)
    run.communication.close()


def launch(arguments: list[str], *, ranks: int, timeout: float) -> list[tuple[int, str]]:
    """Return exit code and output of each rank of a world that trains with `arguments`."""
    with tempfile.TemporaryDirectory() as folder:
        return wait_for(
            start_ranks(arguments, ranks=ranks, folder=Path(folder), module="tests.communication.soak"), timeout=timeout
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, help="worlds to start; absent: be one rank of one")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--kill-rank", type=int)
    parser.add_argument("--timeout", type=float, default=30, help="seconds that a collective waits")
    parser.add_argument("--limit", type=float, default=3600, help="seconds after which a world is killed")
    parser.add_argument("--log", type=Path)
    arguments = parser.parse_args()
    if arguments.launches is None:
        train_all(arguments)
        return
    command = ["--runs", str(arguments.runs), "--steps", str(arguments.steps), "--methods", *arguments.methods]
    command += ["--timeout", str(arguments.timeout)]
    command += [] if arguments.log is None else ["--log", str(arguments.log)]
    wrong = []
    for number in range(arguments.launches):
        started = time.monotonic()
        ended = launch(command, ranks=arguments.ranks, timeout=arguments.limit)
        print(
            f"launch {number}: exit codes {[code for code, _ in ended]}, {time.monotonic() - started:.0f} s", flush=True
        )
        wrong += [ended] if any(code for code, _ in ended) else []
    print(f"{arguments.launches - len(wrong)} of {arguments.launches} worlds ended cleanly", *wrong, sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
