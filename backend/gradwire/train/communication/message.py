"""Tensors that travel together in one collective, and the plain average that methods fall back on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.distributed import Work

from gradwire.train.communication.interface import Bucket
from gradwire.train.communication.lanes import Lanes


class Message:
    """One all-reduce for several tensors: `parts` are views of `values`, 1-D and in the order of `sizes`.

    `values` is in the dtype of the arithmetic; a second buffer travels, in the dtype of the wire, so that what this
    rank sent can still be read while the sum is under way.
    """

    def __init__(self, values: Tensor, sizes: Sequence[int], wire_dtype: torch.dtype) -> None:
        self.values = values
        self.parts: tuple[Tensor, ...] = values.split(list(sizes))
        self._wire = torch.empty_like(values, dtype=wire_dtype)

    def send(self, lanes: Lanes, lane: int) -> Work:
        """Start the all-reduce; `values` becomes what was sent, rounded to the dtype of the wire."""
        self._wire.copy_(self.values)
        if self._wire.dtype != self.values.dtype:
            self.values.copy_(self._wire)
        return lanes.all_reduce(lane, self._wire)

    def receive(self, world_size: int) -> None:
        """Replace `values` by the average over the ranks, once the all-reduce has ended."""
        self.values.copy_(self._wire).div_(world_size)


def average_whole(bucket: Bucket, lanes: Lanes) -> Iterator[Work]:
    """Average a bucket as plain DDP does: divide, then sum (the sum may overflow where the mean does not)."""
    bucket.flat.div_(lanes.world_size)
    yield lanes.all_reduce(0, bucket.flat)


def arithmetic_dtype(flat: Tensor) -> torch.dtype:
    """Return the dtype errors and factors are kept in: the gradients' own, at least float32."""
    return torch.promote_types(flat.dtype, torch.float32)


def add_gradients(errors: Tensor, flat: Tensor) -> None:
    """Add the gradients in `flat` to the first elements of `errors`."""
    # Adding across dtypes is several times slower on a CPU than converting first.
    errors[: flat.numel()].add_(flat.to(errors.dtype))
