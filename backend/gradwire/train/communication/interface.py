"""The words that every communication method shares: a bucket of gradients in, its average out, and what it cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor
from torch.distributed import Work

from gradwire.errors import RunFailed
from gradwire.measure.traffic import StepTraffic
from gradwire.train.communication.lanes import Lanes
from gradwire.train.communication.layout import Layout

# parameter name -> tensor, one such table per kind of tensor ("errors", "right_factors", ...)
Tables = dict[str, dict[str, Tensor]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """Gradients that are averaged together, in one flat buffer that the method overwrites with their average.

    `step` counts synchronised optimizer steps from 0, over interruptions too.
    """

    flat: Tensor
    layout: Layout
    step: int


class Method(Protocol):
    """One algorithm that averages buckets; keeps its state per parameter, never per bucket.

    `average` is a generator: it may start collectives on `lanes` and yields one to have it finished before it goes
    on. Its n-th part runs in the same order of buckets on every rank, so a collective started in part n on lane n
    meets its counterpart. When it ends, `bucket.flat` holds the average, equal to the bit on every rank.
    """

    lane_count: int

    def average(self, bucket: Bucket, lanes: Lanes) -> Iterator[Work]: ...

    def shared_state(self) -> Tables:
        """Return copies of the tensors that are equal on every rank."""

    def local_state(self) -> Tables:
        """Return copies of the tensors that belong to this rank alone."""

    def load(self, shared: Tables, local: Tables | None) -> None:
        """Take over saved tensors; `local` None: start this rank's own from nothing."""


class GradientCommunication(Protocol):
    """The registered method as the training loop sees it.

    `failure` is set when a collective failed. The backward pass then raises RuntimeError, because an error crosses
    torch's C++ code as text: catch it there and raise `failure` instead.
    """

    method: str
    failure: RunFailed | None

    @property
    def last_step(self) -> StepTraffic | None:
        """Return the traffic of the last step whose backward ended; None before the first."""

    def backward_ended(self) -> None:
        """Note that a backward pass has returned, for `last_step`'s exposed seconds; they are None without it."""

    def step_ended(self) -> None:
        """Note that an optimizer step has ended: `local-sgd` makes the ranks equal again after some of them.

        All ranks call it after each of their steps. Raises RunFailed where a rank is gone.
        """

    def synchronise(self) -> None:
        """Make the ranks' parameters equal now, before evaluation and saving; `local-sgd` alone has work to do."""

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's state as tensors and plain values; `torch.load(weights_only=True)` reads it."""

    def load_state_dict(self, state: Mapping[str, Any]) -> tuple[str, ...]:
        """Take over a saved state, on all ranks together; return one sentence for each thing that starts anew."""

    def close(self) -> None:
        """End the thread that communicates; every rank calls this before the process group is destroyed."""
