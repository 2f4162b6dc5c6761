"""Moves an optimizer's learning rate as the recipe says, once per optimizer step that was really taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradwire.documents.recipe_schema import Training
from gradwire.recipe.learning_rate import changes, learning_rate_factor


class ScheduledLearningRate:
    """Holds `optimizer`, torch's or one with its param_groups, at the recipe's learning rate for the next step.

    Each parameter group keeps its own learning rate, that of the optimizer when this is made, as its largest. Nothing
    is touched where the recipe's learning rate is constant: the optimizer's owner may then change it.
    """

    def __init__(self, optimizer: Any, training: Training) -> None:
        # Not its groups: `load_state_dict`, which Accelerate calls on the way, makes new ones.
        self._optimizer = optimizer
        self._largest = [group["lr"] for group in optimizer.param_groups]
        self._training = training
        self._changes = changes(training.scheduler)
        self._steps_taken = 0
        self._set()

    def step(self) -> None:
        """Count one optimizer step as taken; not for one that was skipped."""
        self._steps_taken += 1
        self._set()

    def state_dict(self) -> dict[str, int]:
        """Return what a checkpoint keeps."""
        return {"steps_taken": self._steps_taken}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on from a checkpoint."""
        self._steps_taken = state["steps_taken"]
        self._set()

    def _set(self) -> None:
        if not self._changes:
            return
        factor = learning_rate_factor(
            self._training.scheduler, max_steps=self._training.max_steps, step=self._steps_taken
        )
        for group, largest in zip(self._optimizer.param_groups, self._largest, strict=True):
            group["lr"] = largest * factor


def learning_rate_of(optimizer: Any) -> float:
    """Return the learning rate that the optimizer's first parameter group holds now."""
    return float(optimizer.param_groups[0]["lr"])
