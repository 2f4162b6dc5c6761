"""What the meter costs a training step: many steps of a known length with it and without it, in turn."""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gradwire.integrations.attach.observer import FOLDER_VARIABLE, observer
from gradwire.integrations.device import DeviceMeter
from gradwire.measure.meter import ThroughputMeter

STEP_SECONDS = 0.010


def main() -> None:
    """Print raw seconds of each call's cost and its share of a 10 ms step."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.meter_overhead",
        description="Time what the meter adds to a step. A step here does nothing, so that microseconds are not lost "
        "in the noise of one that does; they are set against a step of 10 ms. Blocks of steps with and without the "
        "meter take turns (A B A B); shown is the median over blocks of the difference, in seconds of the processor "
        "and, which other work on the machine makes longer, of the clock.",
    )
    parser.add_argument("--steps", type=int, default=2000, help="steps in a block (2000)")
    parser.add_argument("--blocks", type=int, default=40, help="blocks of each kind (40)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kinds: dict[str, Callable[[int], Callable[[], None]]] = {
            "ThroughputMeter.step": throughput_meter,
            "DeviceMeter.step": device_meter,
            "gradwire measure": watched(Path(folder)),
        }
        print(f"{os.cpu_count()} processors, torch {torch.__version__}, {options.blocks} x {options.steps} steps each")
        for name, prepare in kinds.items():
            report(name, differences(prepare, steps=options.steps, blocks=options.blocks))


def throughput_meter(_steps: int) -> Callable[[], None]:
    """The arithmetic alone, with a clock."""
    meter = ThroughputMeter(clock=time.perf_counter)
    meter.start()
    return lambda: meter.step(samples=8, tokens=8192)


def device_meter(_steps: int) -> Callable[[], None]:
    """What a loop of one's own calls."""
    meter = DeviceMeter("cuda" if torch.cuda.is_available() else "cpu")
    meter.start()
    return lambda: meter.step(samples=8, tokens=8192)


def watched(folder: Path) -> Callable[[int], Callable[[], None]]:
    """All that `gradwire measure` does in a step: marks at the batch, the model and the optimizer, and a line."""
    os.environ[FOLDER_VARIABLE] = str(folder)
    watcher = observer()
    model = torch.nn.Embedding(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    tokens = torch.zeros(8, 1024, dtype=torch.long)
    model.train()

    def one() -> None:
        with watcher.between("loader-begin", "loader-end"):
            pass
        for hook in list(model._forward_pre_hooks.values()):
            hook(model, (tokens,), {})
        watcher.optimizer_begins(optimizer)
        watcher.optimizer_ended(optimizer)

    one()
    return lambda _steps: one


def differences(prepare: Callable[[int], Callable[[], None]], *, steps: int, blocks: int) -> list[tuple[float, float]]:
    """Return processor and clock seconds per step that the meter adds, of each pair of blocks."""
    found = []
    for _ in range(blocks):
        with_meter = _seconds_per_step(prepare(steps), steps)
        without = _seconds_per_step(_nothing, steps)
        found.append((with_meter[0] - without[0], with_meter[1] - without[1]))
    return found


def _nothing() -> None:
    pass


def _seconds_per_step(step: Callable[[], Any], steps: int) -> tuple[float, float]:
    processor, clock = time.process_time(), time.perf_counter()
    for _ in range(steps):
        step()
    return (time.process_time() - processor) / steps, (time.perf_counter() - clock) / steps


def report(name: str, added: list[tuple[float, float]]) -> None:
    """Print one kind: medians and quarters in microseconds, and the share of a step."""
    for kind, seconds in (("processor", [pair[0] for pair in added]), ("clock", [pair[1] for pair in added])):
        middle = statistics.median(seconds)
        low, _, high = statistics.quantiles(seconds, n=4)
        print(
            f"{name:22} {kind:9} {middle * 1e6:7.2f} us a step (quarters {low * 1e6:.2f} to {high * 1e6:.2f}): "
            f"{middle / STEP_SECONDS:.3%} of 10 ms"
        )


if __name__ == "__main__":
    main()
