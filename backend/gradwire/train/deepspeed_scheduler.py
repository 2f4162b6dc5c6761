"""The learning rates that a DeepSpeed config alone gives, from DeepSpeed's own scheduler on a dummy optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradwire.documents.recipe_schema import Training
from gradwire.recipe.learning_rate import decay_end, planned_learning_rate


def telling_steps(training: Training) -> list[int]:
    """Return the optimizer steps, counted from 0, at which two courses of the learning rate show their difference."""
    warmup = training.scheduler.warmup_steps
    total = decay_end(training.scheduler, max_steps=training.max_steps)
    steps = {0, 1, 2, warmup - 1, warmup, warmup + 1, warmup + 2, (warmup + total) // 2, total - 1, total, total + 1}
    return sorted(step for step in steps if step >= 0)


def planned_learning_rates(training: Training, steps: Sequence[int]) -> list[float]:
    """Return the recipe's learning rate in each of `steps`, to twelve digits."""
    return [_rounded(planned_learning_rate(training, step)) for step in steps]


def file_learning_rates(
    learning_rate: float, scheduler: str | None, params: Mapping[str, Any] | None, steps: Sequence[int]
) -> list[float]:
    """Return what DeepSpeed takes each of the ascending `steps` with, to twelve digits.

    `learning_rate` is the optimizer's in the file; `scheduler` and `params` are the file's own, None without one.
    """
    # Read back where torch is missing too, where it is only said that nothing was.
    import torch
    from deepspeed.runtime import lr_schedules

    optimizer = torch.optim.SGD([torch.zeros(1)], lr=learning_rate)
    if scheduler is None:
        return [_rounded(learning_rate)] * len(steps)
    course = getattr(lr_schedules, scheduler)(optimizer, **(params or {}))
    begin, rates = course.last_batch_iteration, []
    for step in steps:
        if step > 0:
            course.step(begin + step)
        rates.append(_rounded(optimizer.param_groups[0]["lr"]))
    return rates


def _rounded(rate: float) -> float:
    return float(f"{rate:.12g}")
