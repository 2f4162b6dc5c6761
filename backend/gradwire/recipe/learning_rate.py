"""The learning rate of each optimizer step: the one formula that every backend is held against."""

from __future__ import annotations

import math

from gradwire.documents.recipe_schema import Scheduler, Training


def learning_rate_factor(scheduler: Scheduler, *, max_steps: int, step: int) -> float:
    """Return what multiplies `training.learning_rate` in optimizer step `step`, counted from 0; between 0 and 1.

    step / warmup_steps during the warm-up, then the fall from 1 to min_ratio that ends after total_steps (`max_steps`
    where the recipe leaves it out). Without min_ratio these are transformers' get_constant_schedule_with_warmup,
    get_linear_schedule_with_warmup and get_cosine_schedule_with_warmup.
    """
    warmup = scheduler.warmup_steps
    if step < warmup:
        return step / warmup
    total = decay_end(scheduler, max_steps=max_steps)
    progress = min(1.0, (step - warmup) / max(1, total - warmup))
    match scheduler.type:
        case "constant":
            remaining = 1.0
        case "linear":
            remaining = 1.0 - progress
        case "cosine":
            remaining = (1.0 + math.cos(math.pi * progress)) / 2.0
    return scheduler.min_ratio + (1.0 - scheduler.min_ratio) * remaining


def decay_end(scheduler: Scheduler, *, max_steps: int) -> int:
    """Return the optimizer steps, warm-up included, after which the learning rate no longer falls."""
    return scheduler.total_steps or max_steps


def last_step(training: Training) -> int:
    """Return the steps to tell a program whose learning rate falls until its last one: those of the whole fall.

    No fewer than max_steps, after which training ends; a fall that ends before that cannot be told so.
    """
    if training.scheduler.type == "constant":
        return training.max_steps
    return max(training.max_steps, decay_end(training.scheduler, max_steps=training.max_steps))


def changes(scheduler: Scheduler) -> bool:
    """Say whether the learning rate changes over the run."""
    return scheduler.type != "constant" or scheduler.warmup_steps > 0


def planned_learning_rate(training: Training, step: int) -> float:
    """Return the learning rate of optimizer step `step`, counted from 0."""
    factor = learning_rate_factor(training.scheduler, max_steps=training.max_steps, step=step)
    return training.learning_rate * factor
