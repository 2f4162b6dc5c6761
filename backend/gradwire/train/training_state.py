"""What a run has to keep in order to go on as if it had never stopped, and that of a model every rank holds whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from gradwire.train.communication import GradientCommunication
from gradwire.train.schedule import ScheduledLearningRate

Form = Literal["whole", "split"]
"""Whether a checkpoint's `shared` has the model whole, or each rank saved the parts that it holds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Saved:
    """What a checkpoint holds: what is `shared` by its ranks, and what each of them saved of its `own`.

    `is_own`: the run has as many ranks as the checkpoint, and `own` is what this one saved; otherwise it is another
    rank's. `others` reads what the ranks saved whose it is not: all of them where it is not this one's.
    """

    shared: Mapping[str, Any]
    own: Mapping[str, Any]
    is_own: bool
    others: Callable[[], Iterator[Mapping[str, Any]]]


class State(Protocol):
    """Gathers and restores what decides an engine's next step."""

    @property
    def form(self) -> Form:
        """Which form of checkpoint it writes and reads."""

    def make_ranks_equal(self) -> None:
        """Synchronise local steps; every rank calls this before what is shared is saved."""

    def shared(self) -> dict[str, Any]:
        """Return what is equal on all ranks."""

    def own(self) -> dict[str, Any]:
        """Return what this rank saves for itself, and of the model's parts."""

    def load(self, saved: Saved) -> list[str]:
        """Take over a saved state; return what starts anew, in words. Raises UsageError where parts are missing."""

    def continue_from(self, step: int) -> None:
        """Tell the engine that `step` steps have been taken."""


class TrainingState:
    """Gathers and restores the state of one engine's parts.

    `settle` makes one backward pass whose gradients are thrown away: DDP forms its buckets after the first one, and
    the order of additions in them decides the last bits. `ranks_differ`: each rank's optimizer goes its own way.
    """

    form: Form = "whole"

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

    def load(self, saved: Saved) -> list[str]:
        """Take over a saved state; return what starts anew, in words."""
        shared, own = saved.shared, saved.own
        self._settle()
        self._model.load_state_dict(shared["model"])
        has_own_optimizer = saved.is_own and "optimizer" in own
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
