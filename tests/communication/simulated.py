"""Averages a bucket over ranks that live in one process: the arithmetic of any number of them costs milliseconds."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradwire.train.communication.interface import Bucket, Method
from gradwire.train.communication.layout import Layout


class Ended:
    """A collective that has ended."""

    def wait(self) -> None:
        pass


class LanesOfOne:
    """What a method on one of `world_size` ranks sees of the others; remembers what it asks them for."""

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size
        self.asked: tuple[str, Tensor, Tensor] | None = None

    def all_reduce(self, lane: int, tensor: Tensor) -> Ended:
        return self._ask("sum", tensor, tensor)

    def all_to_all(self, lane: int, received: Tensor, sent: Tensor) -> Ended:
        return self._ask("exchange", received, sent)

    def all_gather(self, lane: int, received: Tensor, sent: Tensor) -> Ended:
        return self._ask("gather", received, sent)

    def _ask(self, what: str, received: Tensor, sent: Tensor) -> Ended:
        self.asked = (what, received, sent)
        return Ended()


def average(methods: Sequence[Method], gradients: Sequence[Tensor], layout: Layout, step: int) -> Tensor:
    """Average `gradients`, one flat tensor per rank, each by its rank's own method; fails unless all get the same."""
    lanes = [LanesOfOne(rank, len(methods)) for rank in range(len(methods))]
    flats = [gradient.clone() for gradient in gradients]
    generators = [
        method.average(Bucket(flat=flat, layout=layout, step=step), lane)
        for method, flat, lane in zip(methods, flats, lanes, strict=True)
    ]
    with torch.no_grad():
        while None not in (works := [next(generator, None) for generator in generators]):
            _collective([lane.asked for lane in lanes])
    assert set(works) == {None}, "ranks ask for different numbers of collectives"
    torch.testing.assert_close(flats, [flats[0]] * len(flats), rtol=0, atol=0, equal_nan=True, msg="ranks differ")
    return flats[0]


def _collective(asked: Sequence[tuple[str, Tensor, Tensor]]) -> None:
    [what] = {what for what, _, _ in asked}
    sent = [tensor.clone() for _, _, tensor in asked]
    for rank, (_, received, _) in enumerate(asked):
        match what:
            case "sum":
                received.copy_(torch.stack(sent).sum(0))
            case "exchange":
                received.copy_(torch.cat([tensor.chunk(len(sent))[rank] for tensor in sent]))
            case "gather":
                received.copy_(torch.cat(sent))
