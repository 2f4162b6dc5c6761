"""Trains to equal steps and to equal loss over one link, and writes both beside each other."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from benchmarks.netlab.launch import Site, hosts_of, launch
from benchmarks.netlab.loss_rows import LossRow, Reached, TrainingJob, reached
from benchmarks.netlab.report import aligned, machine_line, place_name

_HEAD = (
    *("configuration", "loss at step {steps}", "s at step {steps}", "time to it", "steps to DDP's loss"),
    *("s to DDP's loss", "of DDP's time", "MB sent per step"),
)

# The promise at 100 Mb/s, on an otherwise idle machine.
_PROMISED, _PROMISED_FASTER = "powersgd-r4@4.5", 5.5


@dataclass(frozen=True, kw_only=True, slots=True)
class _Outcome:
    """One method, means over the seeds.

    `seconds` and `megabytes` (per step) are for equal steps; `plain_seconds` is plain DDP's time for them. `arrival` is
    when plain DDP's loss was reached; None where a seed never had it.
    """

    name: str
    losses: tuple[float, ...]
    seconds: float
    plain_seconds: float
    megabytes: float
    arrival: Reached | None


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
# Convergence: {place_name(site.hosts, site.rate_mbit)}, real training

{machine_line()}, TCP {site.congestion_control}

A byte-level transformer on the standard library's text, AdamW, {job.batch_size_per_gpu} windows of 64 bytes per rank;
seeds {seeds}: of weights and order of windows. Loss: nats per byte on the same held-out windows for all. Gradwire's
low-rank methods compress from step {job.start_step}. A step's passes take {job.compute_seconds:g} s, for every method
alike: a layer that is computed faster waits. Methods took turns, {job.block_steps} steps each; evaluation is not timed.
"""
    outcomes = [_outcome(name, names[0], rows, job) for name in names]
    table = aligned([head, *(_cells(outcome, job.most_steps) for outcome in outcomes)])
    return f"{note}\n{table}\n\n{_target_line(outcomes)}\n"


def _outcome(name: str, plain: str, rows: Sequence[LossRow], job: TrainingJob) -> _Outcome:
    runs = [_run(rows, name, seed) for seed in job.seeds]
    goals = [_at(_run(rows, plain, seed), job.steps) for seed in job.seeds]
    ends = [_at(run, job.steps) for run in runs]
    arrivals = [reached(run, goal.validation_loss) for run, goal in zip(runs, goals, strict=True)]
    known = [arrival for arrival in arrivals if arrival is not None]
    return _Outcome(
        name=name,
        losses=tuple(end.validation_loss for end in ends),
        seconds=statistics.mean(end.seconds for end in ends),
        plain_seconds=statistics.mean(goal.seconds for goal in goals),
        megabytes=statistics.mean(end.sent_bytes for end in ends) / job.steps / 1e6,
        arrival=_mean(known) if len(known) == len(arrivals) else None,
    )


def _cells(outcome: _Outcome, most_steps: int) -> tuple[str, ...]:
    losses, arrival = outcome.losses, outcome.arrival
    loss_range = f" [{min(losses):.3f}, {max(losses):.3f}]" if len(losses) > 1 else ""
    return (
        outcome.name,
        f"{statistics.mean(losses):.3f}{loss_range}",
        f"{outcome.seconds:.1f}",
        f"1/{outcome.plain_seconds / outcome.seconds:.2f}",
        f"not within {most_steps}" if arrival is None else f"{arrival.step:.0f}",
        "" if arrival is None else f"{arrival.seconds:.1f}",
        "" if arrival is None else f"1/{outcome.plain_seconds / arrival.seconds:.2f}",
        f"{outcome.megabytes:.3f}",
    )


def _target_line(outcomes: Sequence[_Outcome]) -> str:
    """Return the promise beside the measured, or nothing where its method was not trained."""
    for outcome in outcomes:
        if outcome.name == _PROMISED:
            faster = 0.0 if outcome.arrival is None else outcome.plain_seconds / outcome.arrival.seconds
            verdict = "met" if faster >= _PROMISED_FASTER else "MISSED"
            return f"Target: {_PROMISED} has DDP's loss in <= 1/{_PROMISED_FASTER} of its time. {verdict}"
    return ""


def _mean(arrivals: Sequence[Reached]) -> Reached:
    return Reached(
        step=statistics.mean(arrival.step for arrival in arrivals),
        seconds=statistics.mean(arrival.seconds for arrival in arrivals),
    )


def _run(rows: Iterable[LossRow], name: str, seed: int) -> list[LossRow]:
    return [row for row in rows if row.configuration == name and row.seed == seed]


def _at(run: Sequence[LossRow], step: int) -> LossRow:
    return next(row for row in run if row.step == step)
