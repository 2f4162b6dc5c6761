"""Trains to equal steps and to equal loss over one link, and writes both beside each other."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from benchmarks.netlab.launch import Site, hosts_of, launch
from benchmarks.netlab.loss_rows import LossRow, Reached, TrainingJob, reached
from benchmarks.netlab.report import aligned, machine_line, place_name

_HEAD = (
    *("configuration", "loss at step {steps}", "s at step {steps}", "time to it", "steps to DDP's loss"),
    *("s to DDP's loss", "of DDP's time", "MB sent per step"),
)


def train(job: TrainingJob, site: Site, *, folder: Path, timeout_seconds: float) -> str:
    """Train by `job`, write the raw rows and the table to `folder`, and return the table.

    Raises RunFailed with the end of the log where a worker fails or the time runs out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"{site.name}-convergence"
    job = replace(job, out=str(stem.with_name(f"{stem.name}.rows.json").resolve()))
    with hosts_of(site) as places:
        launch(places, "benchmarks.netlab.training", job, stem, timeout_seconds)
    rows = msgspec.json.decode(Path(job.out).read_bytes(), type=list[LossRow])
    text = convergence_text(rows, job, site)
    stem.with_name(f"{stem.name}.md").write_text(text)
    return text


def convergence_text(rows: Sequence[LossRow], job: TrainingJob, site: Site) -> str:
    """Return the table: means over the seeds, and each loss's range where there are several."""
    names = [configuration.name for configuration in job.configurations]
    head = [cell.format(steps=job.steps) for cell in _HEAD]
    seeds = ", ".join(map(str, job.seeds))
    note = f"""\
# Convergence: {place_name(site.hosts, site.rate_mbit)}, real compute

{machine_line()}, TCP {site.congestion_control}

A byte-level transformer on the standard library's text, AdamW, {job.batch_size_per_gpu} windows of 64 bytes per rank;
seeds {seeds}: of weights and order of windows. Loss: nats per byte on the same held-out windows for all. Low-rank
methods compress from step {job.start_step}. Methods took turns, {job.block_steps} steps each; evaluation is not timed.
"""
    return f"{note}\n{aligned([head, *(_cells(name, names[0], rows, job) for name in names)])}\n"


def _cells(name: str, plain: str, rows: Sequence[LossRow], job: TrainingJob) -> tuple[str, ...]:
    losses, seconds, plain_seconds, ends, megabytes = [], [], [], [], []
    for seed in job.seeds:
        run, plain_run = _run(rows, name, seed), _run(rows, plain, seed)
        at_end, plain_at_end = _at(run, job.steps), _at(plain_run, job.steps)
        losses.append(at_end.validation_loss)
        seconds.append(at_end.seconds)
        megabytes.append(at_end.sent_bytes / job.steps / 1e6)
        ends.append(reached(run, plain_at_end.validation_loss))
        plain_seconds.append(plain_at_end.seconds)
    loss_range = f" [{min(losses):.3f}, {max(losses):.3f}]" if len(losses) > 1 else ""
    return (
        name,
        f"{statistics.mean(losses):.3f}{loss_range}",
        f"{statistics.mean(seconds):.1f}",
        f"1/{statistics.mean(plain_seconds) / statistics.mean(seconds):.2f}",
        *_reached_cells(ends, plain_seconds, job.most_steps),
        f"{statistics.mean(megabytes):.3f}",
    )


def _reached_cells(ends: Sequence[Reached | None], plain_seconds: Sequence[float], most_steps: int) -> tuple[str, ...]:
    known = [end for end in ends if end is not None]
    if len(known) < len(ends):
        return f"not within {most_steps}", "", ""
    seconds = statistics.mean(end.seconds for end in known)
    return (
        f"{statistics.mean(end.step for end in known):.0f}",
        f"{seconds:.1f}",
        f"1/{statistics.mean(plain_seconds) / seconds:.2f}",
    )


def _run(rows: Iterable[LossRow], name: str, seed: int) -> list[LossRow]:
    return [row for row in rows if row.configuration == name and row.seed == seed]


def _at(run: Sequence[LossRow], step: int) -> LossRow:
    return next(row for row in run if row.step == step)
