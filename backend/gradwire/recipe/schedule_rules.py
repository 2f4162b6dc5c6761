"""Rules of the learning rate's course: the warm-up leaves room for the fall, and every option is read."""

from __future__ import annotations

from gradwire.documents.recipe_schema import Recipe
from gradwire.recipe.broken import Broken
from gradwire.recipe.learning_rate import decay_end

_SCHEDULER = "training.scheduler"


def warmup_ends_before_the_decay(recipe: Recipe) -> Broken | None:
    """A fall that ends within the warm-up never happens: the learning rate drops to its end in one step."""
    training = recipe.training
    scheduler = training.scheduler
    total = decay_end(scheduler, max_steps=training.max_steps)
    if scheduler.type == "constant" or scheduler.warmup_steps < total:
        return None
    end = f"{_SCHEDULER}.total_steps" if scheduler.total_steps else "training.max_steps"
    way_out = (
        "make total_steps larger or warmup_steps smaller"
        if scheduler.total_steps
        else "make warmup_steps smaller, or set total_steps to the length of the whole run"
    )
    return Broken(
        paths=(f"{_SCHEDULER}.warmup_steps", end, f"{_SCHEDULER}.type"),
        message=f"the warm-up of {scheduler.warmup_steps} steps leaves none of {total} steps for the "
        f"{scheduler.type} fall; {way_out}",
    )


def constant_rate_has_no_decay(recipe: Recipe) -> Broken | None:
    """What the learning rate falls to, and when, means nothing where it does not fall."""
    scheduler = recipe.training.scheduler
    if scheduler.type != "constant":
        return None
    given = ["total_steps"] * (scheduler.total_steps is not None) + ["min_ratio"] * (scheduler.min_ratio != 0)
    if not given:
        return None
    return Broken(
        paths=(*(f"{_SCHEDULER}.{name}" for name in given), f"{_SCHEDULER}.type"),
        message=f"{' and '.join(given)} would be ignored: a constant learning rate does not fall; "
        f"remove {'it' if len(given) == 1 else 'them'}, or use type linear or cosine",
    )
