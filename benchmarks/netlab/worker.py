"""One rank of a measurement: visits every configuration in turn, several rounds, and times its steps."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor, nn

from benchmarks.netlab.byte_model import ByteModel, random_windows, standard_library_text
from benchmarks.netlab.configurations import Configuration
from benchmarks.netlab.emulated import LAYERS, WIDTH, EmulatedModel
from benchmarks.netlab.install import with_chosen_bucket, wrap
from benchmarks.netlab.job import Job, read_job
from benchmarks.netlab.rows import Measured, Sample
from benchmarks.netlab.world import agreed, all_reduce_speed, gathered, interface_bytes, join, leave

_SEED = 7
_REAL_BATCH, _REAL_LENGTH, _REAL_HEADS = 3, 64, 6


@dataclass(kw_only=True, slots=True)
class _Subject:
    configuration: Configuration
    step: Callable[[], None]
    close: Callable[[], None]
    steps_per_visit: int = 0


def main(job_path: Path) -> None:
    """Run the job and write its report from rank 0."""
    job = read_job(job_path)
    join()
    latency, bytes_per_second = all_reduce_speed(job.probe_bytes)
    subjects = [_build(configuration, job) for configuration in job.configurations]
    for subject in subjects:
        _warm_up(subject, job)
    samples = []
    for number in range(job.pace.rounds):
        # Every second round runs backwards, so that no configuration always follows the same one.
        for subject in subjects if number % 2 == 0 else reversed(subjects):
            samples.append(_visit(subject, number))
    if dist.get_rank() == 0:
        report = Measured(latency_seconds=latency, bytes_per_second=bytes_per_second, samples=samples)
        Path(job.out).write_bytes(msgspec.json.encode(report))
    for subject in subjects:
        subject.close()
    leave()


def _build(configuration: Configuration, job: Job) -> _Subject:
    torch.manual_seed(_SEED)
    model, forward = _emulated(job.compute_seconds) if job.mode == "emulated" else _real()
    configuration = with_chosen_bucket(model, configuration, lambda: forward(model))
    installed = wrap(model, configuration)

    def step() -> None:
        forward(installed.model).backward()
        installed.model.zero_grad(set_to_none=True)

    return _Subject(configuration=configuration, step=step, close=installed.close)


def _emulated(compute_seconds: float) -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    model = EmulatedModel(compute_seconds=compute_seconds, seed=_SEED + dist.get_rank())
    activations = torch.zeros(1, requires_grad=True)
    return model, lambda wrapped: wrapped(activations)


def _real() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    model = ByteModel(width=WIDTH, layers=LAYERS, heads=_REAL_HEADS, length=_REAL_LENGTH)
    text, _ = standard_library_text()
    generator = torch.Generator().manual_seed(_SEED + dist.get_rank())
    windows = random_windows(text, batch=_REAL_BATCH, length=_REAL_LENGTH, generator=generator)
    return model, lambda wrapped: wrapped(windows)


def _warm_up(subject: _Subject, job: Job) -> None:
    """Let buckets, state and compression settle, and choose how many steps a visit has."""
    for _ in range(job.pace.warmup_steps - 1):
        subject.step()
    dist.barrier()
    started = time.perf_counter()
    subject.step()
    fitting = job.pace.visit_seconds / (time.perf_counter() - started)
    subject.steps_per_visit = agreed(max(job.pace.least_steps, min(job.pace.most_steps, round(fitting))))


def _visit(subject: _Subject, number: int) -> Sample:
    step_seconds = []
    dist.barrier()
    sent, received = interface_bytes()
    cpu = time.process_time()
    for _ in range(subject.steps_per_visit):
        started = time.perf_counter()
        subject.step()
        step_seconds.append(time.perf_counter() - started)
    cpu = time.process_time() - cpu
    # A rank may end while its last packets still wait in its own queue; a barrier's packets wait behind them.
    dist.barrier()
    sent_after, received_after = interface_bytes()
    ranks = gathered((step_seconds, sent_after - sent, received_after - received))
    steps = subject.steps_per_visit
    return Sample(
        configuration=subject.configuration.name,
        bucket_cap_mb=subject.configuration.bucket_cap_mb,
        round=number,
        step_seconds=[max(seconds) for seconds in zip(*(rank[0] for rank in ranks), strict=True)],
        sent_bytes=statistics.mean(rank[1] for rank in ranks) / steps,
        received_bytes=statistics.mean(rank[2] for rank in ranks) / steps,
        cpu_seconds=cpu / steps,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
