"""What the convergence benchmark asks of its workers, what they answer, and when a loss was first reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.netlab.configurations import Configuration


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingJob:
    """Train each configuration for `steps` steps, evaluated every `block_steps`; the first sets the loss to reach.

    Those above that loss go on to `most_steps` at most. `start_step` is the first step that Gradwire's low-rank methods
    compress. The passes of a step take `compute_seconds`, or longer where the machine is slower.
    Rank 0 writes its rows to `out`, which the launch fills in.
    """

    configurations: tuple[Configuration, ...]
    seeds: tuple[int, ...]
    steps: int
    most_steps: int
    block_steps: int
    batch_size_per_gpu: int
    learning_rate: float
    start_step: int
    compute_seconds: float
    out: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class LossRow:
    """A run after `step` steps: seconds spent in steps, bytes sent by rank 0's host, held-out loss in nats."""

    configuration: str
    seed: int
    step: int
    seconds: float
    validation_loss: float
    sent_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Reached:
    """When a run first had a loss, between two evaluations by a straight line."""

    step: float
    seconds: float


def reached(rows: Sequence[LossRow], loss: float) -> Reached | None:
    """Return when the run of `rows`, in order of steps, first had `loss` or less; None where it never had."""
    before: LossRow | None = None
    for row in rows:
        if row.validation_loss <= loss:
            if before is None:
                return Reached(step=row.step, seconds=row.seconds)
            share = (before.validation_loss - loss) / (before.validation_loss - row.validation_loss)
            return Reached(
                step=before.step + share * (row.step - before.step),
                seconds=before.seconds + share * (row.seconds - before.seconds),
            )
        before = row
    return None
