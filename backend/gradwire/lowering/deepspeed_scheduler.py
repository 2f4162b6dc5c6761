"""Says the learning rate's course in DeepSpeed's own scheduler, which is one step behind everybody else's.

DeepSpeed's schedulers begin at `last_batch_iteration` -1 with their lowest rate and move after each step, so step 1
gets what they call iteration 0: the lowest rate once more. Begun at 0 instead, they set no rate at first, and the first
step is taken with the optimizer's own `lr`.
"""

from __future__ import annotations

from typing import Any

from gradwire.documents.recipe_schema import Training
from gradwire.recipe.learning_rate import changes, decay_end

# A shorter warm-up is stretched to two iterations, without a word in the file.
_SHORTEST_WARMUP = 2


def scheduler_section(training: Training) -> dict[str, Any] | None:
    """Return DeepSpeed's `scheduler`, for an optimizer with `first_learning_rate`; None: the rate is constant."""
    scheduler, peak = training.scheduler, training.learning_rate
    if not changes(scheduler):
        return None
    # Iterations before the first step: they end the shortest warm-up where the recipe's is shorter.
    ahead = max(0, _SHORTEST_WARMUP - scheduler.warmup_steps)
    params: dict[str, Any] = {
        "warmup_num_steps": scheduler.warmup_steps + ahead,
        "warmup_type": "linear",
        "last_batch_iteration": ahead,
    }
    total = decay_end(scheduler, max_steps=training.max_steps)
    match scheduler.type:
        case "constant":
            return _section("WarmupLR", params, warmup_min_lr=0.0, warmup_max_lr=peak)
        case "linear":
            lowest = scheduler.min_ratio * peak
            return _section(
                "WarmupDecayLR", params, warmup_min_lr=lowest, warmup_max_lr=peak, total_num_steps=total + ahead
            )
        case "cosine":
            ratios = {"warmup_min_ratio": 0.0, "cos_min_ratio": scheduler.min_ratio}
            if scheduler.warmup_steps:
                # It multiplies the optimizer's lr, so that cannot be the first step's 0: begin where that is set.
                late = {**params, "last_batch_iteration": -1}
                return _section("WarmupCosineLR", late, **ratios, total_num_steps=total)
            # Unlike the others it counts the step after the warm-up as the first one of the fall.
            begun = {**params, "last_batch_iteration": ahead - 1}
            return _section("WarmupCosineLR", begun, **ratios, total_num_steps=total + ahead)


def first_learning_rate(training: Training) -> float:
    """Return the optimizer's own `lr` beside `scheduler_section`."""
    scheduler = training.scheduler
    if scheduler.type == "cosine" or not scheduler.warmup_steps:
        return training.learning_rate
    return scheduler.min_ratio * training.learning_rate


def scheduler_says_it_all(training: Training) -> bool:
    """Say whether the file alone gives every step the recipe's learning rate.

    WarmupCosineLR warms up one step late. WarmupDecayLR ends at the rate that it begins with.
    """
    scheduler = training.scheduler
    return scheduler.warmup_steps == 0 or (scheduler.type != "cosine" and scheduler.min_ratio == 0)


def late_by(training: Training) -> str:
    """Return in words how far the file alone is from the recipe, where `scheduler_says_it_all` is false."""
    if training.scheduler.type == "cosine":
        return "WarmupCosineLR warms up one step late"
    return "WarmupDecayLR warms up from the rate that it ends at, not from 0"


def _section(name: str, params: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": name, "params": {**params, **more}}
