"""local-sgd: ranks train by themselves for several steps, then take one step together along their mean difference.

Stich: Local SGD Converges Fast and Communicates Little, ICLR 2019, arXiv:1805.09767; begun after some steps together it
is post-local SGD (Lin et al., ICLR 2020, arXiv:1808.07217); with an outer Nesterov step it is DiLoCo (Douillard et al.
2023, arXiv:2311.08105, algorithm 1: outer learning rate 0.7, momentum 0.9, and 50 local steps or more). With A the
parameters at the last synchronisation, equal on all ranks, and X those of one rank now:

    D = mean over ranks of A - X;  V = outer_momentum V + D;  A = A - outer_learning_rate (D + outer_momentum V);  X = A

Learning rate 1 and momentum 0, the defaults, are the plain average. The difference may travel as int8, with its
rounding kept for the next one. The optimizer's state stays each rank's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributed import Work

from gradwire.train.communication.int8 import Int8
from gradwire.train.communication.interface import Bucket, Tables
from gradwire.train.communication.lanes import Lanes
from gradwire.train.communication.layout import Layout, layout_of
from gradwire.train.communication.message import arithmetic_dtype, average_whole

# Parameters that travel together: enough to use a link well, so few that one part's arithmetic hides another's way.
_PART_ELEMENTS = 2 * 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalSgdOptions:
    """The recipe's options; `int8_block_size` None: the difference travels in full."""

    start_step: int
    local_steps: int
    outer_learning_rate: float
    outer_momentum: float
    int8_block_size: int | None
    error_feedback: bool


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Part:
    """Parameters that are synchronised together."""

    names: tuple[str, ...]
    layout: Layout


class LocalSgd:
    """Averages gradients before `start_step` and leaves them alone from there on; averages parameters instead.

    `parameters` are the model's trainable ones by name.
    """

    lane_count = 2

    def __init__(self, options: LocalSgdOptions, parameters: Sequence[tuple[str, Tensor]]) -> None:
        self._options = options
        self._parameters = dict(parameters)
        self._anchors: dict[str, Tensor] = {}
        self._velocities: dict[str, Tensor] = {}
        self._int8 = (
            None
            if options.int8_block_size is None
            else Int8(block_size=options.int8_block_size, error_feedback=options.error_feedback, unused=False)
        )
        self._parts = tuple(_parts_of(parameters))

    @property
    def parts(self) -> tuple[Part, ...]:
        return self._parts

    def average(self, bucket: Bucket, lanes: Lanes) -> Iterator[Work]:
        """Average the gradients of a step before `start_step`; note where the local steps begin."""
        if bucket.step < self._options.start_step:
            yield from average_whole(bucket, lanes)
            return
        for name in bucket.layout.names:
            if name not in self._anchors:
                parameter = self._parameters[name].detach()
                self._anchors[name] = parameter.to(arithmetic_dtype(parameter), copy=True).flatten()

    def is_due(self, steps: int) -> bool:
        """Return whether ranks synchronise after `steps` steps, counted over interruptions."""
        local = steps - self._options.start_step
        return local > 0 and local % self._options.local_steps == 0

    def has_local_steps(self, steps: int) -> bool:
        """Return whether ranks may differ after `steps` steps, unless they have just synchronised."""
        return steps > self._options.start_step

    def synchronise(self, part: Part, step: int, lanes: Lanes) -> Iterator[Work]:
        """Take the outer step with the parameters of `part`; afterwards they are equal to the bit on every rank."""
        for name in part.names:
            if name not in self._anchors:
                # A parameter that no bucket has held: it never had a gradient, and is what it was.
                parameter = self._parameters[name].detach()
                self._anchors[name] = parameter.to(arithmetic_dtype(parameter), copy=True).flatten()
        difference = torch.cat([self._difference(name) for name in part.names])
        bucket = Bucket(flat=difference, layout=part.layout, step=step)
        yield from average_whole(bucket, lanes) if self._int8 is None else self._int8.average(bucket, lanes)
        for slot in part.layout.slots:
            self._step(slot.name, difference[slot.offset : slot.end])

    def shared_state(self) -> Tables:
        return {"anchors": _copies(self._anchors), "velocities": _copies(self._velocities)}

    def local_state(self) -> Tables:
        return {} if self._int8 is None else self._int8.local_state()

    def load(self, shared: Tables, local: Tables | None) -> None:
        self._anchors, self._velocities = _copies(shared["anchors"]), _copies(shared["velocities"])
        if self._int8 is not None:
            self._int8.load({}, local if local and "errors" in local else None)

    def _difference(self, name: str) -> Tensor:
        parameter, anchor = self._parameters[name].detach(), self._anchors[name]
        # What rounding to the parameter's dtype took from the anchor is no difference that anybody trained.
        return anchor.to(parameter.dtype).to(anchor.dtype) - parameter.to(anchor.dtype).flatten()

    def _step(self, name: str, difference: Tensor) -> None:
        options, anchor, parameter = self._options, self._anchors[name], self._parameters[name]
        if options.outer_momentum:
            if name not in self._velocities:
                self._velocities[name] = torch.zeros_like(anchor)
            velocity = self._velocities[name]
            velocity.mul_(options.outer_momentum).add_(difference)
            difference = difference.add(velocity, alpha=options.outer_momentum)
        anchor.sub_(difference, alpha=options.outer_learning_rate)
        parameter.detach().copy_(anchor.view(parameter.shape))


def _parts_of(parameters: Sequence[tuple[str, Tensor]]) -> Iterator[Part]:
    held: list[tuple[str, Tensor]] = []
    for name, parameter in parameters:
        held.append((name, parameter))
        if sum(each.numel() for _, each in held) >= _PART_ELEMENTS:
            yield _part(held)
            held = []
    if held:
        yield _part(held)


def _part(held: Sequence[tuple[str, Tensor]]) -> Part:
    names = [name for name, _ in held]
    # Flattened row by row, whatever the strides are in memory.
    return Part(names=tuple(names), layout=layout_of(names, [each.detach().reshape(-1) for _, each in held]))


def _copies(table: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in table.items()}
