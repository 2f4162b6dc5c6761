"""One rank of the convergence benchmark: trains every method on the same bytes, in turn, and times its steps."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist
from torch import nn

from benchmarks.netlab.byte_model import ByteModel, random_windows, standard_library_text
from benchmarks.netlab.emulated import LAYERS, WIDTH
from benchmarks.netlab.install import wrap
from benchmarks.netlab.loss_rows import LossRow, TrainingJob
from benchmarks.netlab.pace import PacedCompute
from benchmarks.netlab.world import agreed, gathered, interface_bytes, join, leave

_HEADS, _LENGTH = 6, 64
_HELD_OUT_SEED, _HELD_OUT_WINDOWS = 1234, 64
_WARMUP_STEPS = 10


@dataclass(kw_only=True, slots=True)
class _Run:
    name: str
    model: nn.Module
    step: Callable[[int], None]
    synchronise: Callable[[], None]
    close: Callable[[], None]
    steps: int = 0
    seconds: float = 0.0
    sent_bytes: int = 0
    losses: list[float] = field(default_factory=list)


def main(job_path: Path) -> None:
    """Train by the job and write its rows from rank 0."""
    job = msgspec.json.decode(job_path.read_bytes(), type=TrainingJob)
    join()
    rows: list[LossRow] = []
    for seed in job.seeds:
        for row in _train_all(job, seed):
            rows.append(row)
            # An hour's work must not be lost with its last minute.
            if dist.get_rank() == 0:
                Path(job.out).write_bytes(msgspec.json.encode(rows))
    leave()


def _train_all(job: TrainingJob, seed: int) -> Iterator[LossRow]:
    """Train every method `job.steps` steps in turn, a block at a time, then each on until it has the first's loss."""
    text, held_out = standard_library_text()
    windows = random_windows(
        held_out,
        batch=_HELD_OUT_WINDOWS,
        length=_LENGTH,
        generator=torch.Generator().manual_seed(_HELD_OUT_SEED),
    ).chunk(dist.get_world_size())[dist.get_rank()]
    runs = [
        _start(configuration.name, job, seed, text, index) for index, configuration in enumerate(job.configurations)
    ]
    for run in runs:
        yield _evaluated(run, seed, windows)
    while runs[0].steps < job.steps:
        for run in runs:
            _train_block(run, job.block_steps)
            yield _evaluated(run, seed, windows)
    goal = runs[0].losses[-1]
    for run in runs:
        while run.losses[-1] > goal and run.steps < job.most_steps:
            _train_block(run, job.block_steps)
            yield _evaluated(run, seed, windows)
        run.close()


def _start(name: str, job: TrainingJob, seed: int, text: torch.Tensor, index: int) -> _Run:
    torch.manual_seed(seed)
    model = ByteModel(width=WIDTH, layers=LAYERS, heads=_HEADS, length=_LENGTH)
    pace = PacedCompute(model.body.layers, job.compute_seconds)
    installed = wrap(model, job.configurations[index], start_step=job.start_step)
    optimizer = torch.optim.AdamW(model.parameters(), lr=job.learning_rate)
    # The same bytes in the same order for every method; other ones on each rank and for each seed.
    generator = torch.Generator().manual_seed(seed * 1000 + dist.get_rank())

    def step(number: int) -> None:
        for group in optimizer.param_groups:
            group["lr"] = job.learning_rate * min(1.0, (number + 1) / _WARMUP_STEPS)
        batch = random_windows(text, batch=job.batch_size_per_gpu, length=_LENGTH, generator=generator)
        pace.begin_forward()
        loss = installed.model(batch)
        pace.begin_backward()
        loss.backward()
        pace.end_backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        installed.step_ended()

    return _Run(name=name, model=model, step=step, synchronise=installed.synchronise, close=installed.close)


def _train_block(run: _Run, steps: int) -> None:
    dist.barrier()
    sent, _ = interface_bytes()
    started = time.perf_counter()
    for number in range(run.steps, run.steps + steps):
        run.step(number)
    # Ranks that differ are made equal before they are evaluated, on the clock.
    run.synchronise()
    run.seconds += max(gathered(time.perf_counter() - started))
    run.sent_bytes += interface_bytes()[0] - sent
    run.steps += steps


def _evaluated(run: _Run, seed: int, windows: torch.Tensor) -> LossRow:
    """Return the row of the run as it stands; each rank evaluates its share of the held-out windows, off the clock."""
    with torch.no_grad():
        loss = float(run.model(windows))
    shares = gathered((loss, len(windows)))
    run.losses.append(agreed(sum(share * count for share, count in shares) / sum(count for _, count in shares)))
    return LossRow(
        configuration=run.name,
        seed=seed,
        step=run.steps,
        seconds=run.seconds,
        validation_loss=run.losses[-1],
        sent_bytes=run.sent_bytes,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
