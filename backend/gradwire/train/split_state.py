"""What a run has to keep where ranks hold parts of the model: shards of tensors, stages of a pipeline, or both.

Each rank saves the pieces it holds, under the names of the whole model, so that ranks in another number, which hold
other pieces, find theirs. torch.distributed.checkpoint does the same, but its index is a pickle: reading it runs code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gradwire.errors import UsageError
from gradwire.train.communication import GradientCommunication
from gradwire.train.pieces import Piece, piece_of
from gradwire.train.schedule import ScheduledLearningRate
from gradwire.train.training_state import Form, Saved

# parameter name -> kind ("weights", or the optimizer's word) -> piece
Pieces = dict[str, dict[str, Any]]
_WEIGHTS = "weights"


class SplitTrainingState:
    """Gathers and restores the state of an engine whose ranks hold parts of a model.

    `parameters` are this rank's, in the optimizer's order, under the names of the whole model. `is_copy`: another rank
    saves the same parameters (those that are DTensors know it themselves).
    """

    form: Form = "split"

    def __init__(
        self,
        *,
        parameters: Sequence[tuple[str, Tensor]],
        optimizer: Any,
        schedule: ScheduledLearningRate,
        scaler: Any,
        communication: GradientCommunication | None,
        is_copy: bool,
        go_on_from: Callable[[int], None],
    ) -> None:
        self._parameters = list(parameters)
        self._optimizer = optimizer
        self._schedule = schedule
        self._scaler = scaler
        self._communication = communication
        self._is_copy = is_copy
        self._go_on_from = go_on_from

    def make_ranks_equal(self) -> None:
        """Do nothing: no local steps are taken where the model is in parts."""

    def shared(self) -> dict[str, Any]:
        """Return what is equal on all ranks."""
        groups = self._optimizer.state_dict()["param_groups"]
        return {
            "groups": [{key: value for key, value in group.items() if key != "params"} for group in groups],
            "schedule": self._schedule.state_dict(),
            "scaler": None if self._scaler is None else self._scaler.state_dict(),
        }

    def own(self) -> dict[str, Any]:
        """Return the pieces that this rank saves for all."""
        pieces: Pieces = {}
        for name, parameter in self._parameters:
            weights = piece_of(parameter, is_copy=self._is_copy)
            # Ranks count no steps for a shard without elements.
            if weights.is_copy or not weights.local.numel():
                continue
            state = self._optimizer.state.get(parameter, {})
            held = {kind: piece_of(value, is_copy=False) for kind, value in state.items()}
            pieces[name] = {kind: piece.saved() for kind, piece in {_WEIGHTS: weights, **held}.items()}
        if self._communication is None:
            return {"pieces": pieces}
        return {"pieces": pieces, "parameters": self._names(), "communication": self._communication.state_dict()}

    def load(self, saved: Saved) -> list[str]:
        """Take over a saved state; raises UsageError where the checkpoint lacks a part of this rank's."""
        needed = {name: _Needed(parameter) for name, parameter in self._parameters}
        for files in _own_first(saved):
            for name, kinds in files["pieces"].items():
                if name in needed:
                    needed[name].take(kinds)
            if all(each.is_complete for each in needed.values()):
                break
        missing = [name for name, each in needed.items() if not each.is_complete]
        if missing:
            raise UsageError(
                f"the checkpoint lacks {len(missing)} parameters of this rank or parts of them: {missing[0]}"
            )
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict(
            {
                "state": {number: dict(each.state) for number, each in enumerate(needed.values()) if each.state},
                "param_groups": [
                    {**theirs, "params": own["params"]}
                    for theirs, own in zip(saved.shared["groups"], groups, strict=True)
                ],
            }
        )
        self._schedule.load_state_dict(saved.shared["schedule"])
        if self._scaler is not None:
            self._scaler.load_state_dict(saved.shared["scaler"])
        return self._load_communication(saved)

    def _load_communication(self, saved: Saved) -> list[str]:
        if self._communication is None:
            return []
        for files in _own_first(saved):
            # Of a rank with the same parameters: what it shares with others of its stage holds for this one too.
            if files.get("parameters") == self._names():
                return list(self._communication.load_state_dict(files["communication"]))
        return ["gradient communication starts anew: no rank of the checkpoint averaged this one's parameters"]

    def _names(self) -> list[str]:
        return [name for name, _ in self._parameters]

    def continue_from(self, step: int) -> None:
        """Tell the engine that `step` steps have been taken."""
        self._go_on_from(step)


class _Needed:
    """One parameter of this rank, being put together with its optimizer's `state`."""

    def __init__(self, parameter: Tensor) -> None:
        self.state: dict[str, Tensor] = {}
        self._parameter = parameter
        self._targets: dict[str, Piece] = {_WEIGHTS: piece_of(parameter, is_copy=False)}
        self._taken: dict[str, int] = {}

    @property
    def is_complete(self) -> bool:
        return bool(self._taken) and all(
            self._taken[kind] == target.local.numel() for kind, target in self._targets.items()
        )

    def take(self, kinds: Mapping[str, Mapping[str, Any]]) -> None:
        """Copy what one rank saved of the parameter."""
        if self.is_complete:
            return
        for kind, saved in kinds.items():
            if kind not in self._targets:
                self.state[kind] = self._empty(saved)
                self._targets[kind] = piece_of(self.state[kind], is_copy=False)
            if self._taken.setdefault(kind, 0) < self._targets[kind].local.numel():
                self._taken[kind] += self._targets[kind].take(saved)

    def _empty(self, saved: Mapping[str, Any]) -> Tensor:
        """Return a tensor of the optimizer's: in parts as the parameter is where it has its shape, else whole."""
        dtype = saved["local"].dtype
        if saved["shape"] == list(self._parameter.shape):
            return torch.zeros_like(self._parameter, dtype=dtype)
        return torch.zeros(saved["shape"], dtype=dtype)


def _own_first(saved: Saved) -> Iterator[Mapping[str, Any]]:
    """Give what this rank saved, mostly all that it needs in a world of the same size, and then what others did."""
    if saved.is_own:
        yield saved.own
    yield from saved.others()
