"""What a run has to keep in order to go on as if it had never stopped, for a model that every rank holds whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gradwire.train.communication import GradientCommunication
from gradwire.train.schedule import ScheduledLearningRate


class TrainingState:
    """Gathers and restores the state of one engine's parts.

    `settle` makes one backward pass whose gradients are thrown away: DDP forms its buckets after the first one, and
    the order of additions in them decides the last bits. `ranks_differ`: each rank's optimizer goes its own way.
    """

    def __init__(
        self,
        *,
        model: Any,
        optimizer: Any,
        schedule: ScheduledLearningRate,
        scaler: Any,
        communication: GradientCommunication | None,
        settle: Callable[[], None],
        ranks_differ: bool,
        go_on_from: Callable[[int], None],
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._schedule = schedule
        self._scaler = scaler
        self._communication = communication
        self._settle = settle
        self._ranks_differ = ranks_differ
        self._go_on_from = go_on_from

    def make_ranks_equal(self) -> None:
        """Synchronise local steps; every rank calls this before what is shared is saved."""
        if self._communication is not None:
            self._communication.synchronise()

    def shared(self) -> dict[str, Any]:
        """Return what is equal on all ranks."""
        return {
            "model": self._model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "schedule": self._schedule.state_dict(),
            "scaler": self._scaler.state_dict(),
        }

    def own(self) -> dict[str, Any]:
        """Return what belongs to this rank."""
        own: dict[str, Any] = {}
        if self._communication is not None:
            own["communication"] = self._communication.state_dict()
        if self._ranks_differ:
            own["optimizer"] = self._optimizer.state_dict()
        return own

    def load(self, shared: Mapping[str, Any], own: Mapping[str, Any], *, is_own: bool) -> list[str]:
        """Take over a saved state; `is_own`: it is this rank's of as many. Return what starts anew, in words."""
        self._settle()
        self._model.load_state_dict(shared["model"])
        has_own_optimizer = is_own and "optimizer" in own
        self._optimizer.load_state_dict(own["optimizer"] if has_own_optimizer else shared["optimizer"])
        self._schedule.load_state_dict(shared["schedule"])
        self._scaler.load_state_dict(shared["scaler"])
        notes = []
        if self._ranks_differ and not has_own_optimizer:
            notes.append("every rank starts with rank 0's optimizer state: the checkpoint has none of its own for it")
        if self._communication is not None and "communication" in own:
            notes += self._communication.load_state_dict(own["communication"])
        return notes

    def continue_from(self, step: int) -> None:
        """Tell the engine that `step` steps have been taken."""
        self._go_on_from(step)
