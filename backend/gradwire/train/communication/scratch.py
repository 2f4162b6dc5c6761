"""Buffers that a method fills anew in every step, kept from step to step: fresh pages cost a CPU more than the work."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gradwire.train.communication.layout import Layout, without_overlap

# Elements per pass on a CPU: a few arrays of this size stay in a core's cache.
_CHUNK = 65536


class Scratch:
    """Buffers by bucket and purpose."""

    def __init__(self) -> None:
        self._buffers: dict[Layout, dict[str, Tensor]] = {}
        self._work: Tensor | None = None

    def get(self, layout: Layout, purpose: str, numel: int, *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return the 1-D buffer for `purpose`, with what the last step left in it; zeros at first."""
        if layout not in self._buffers:
            self._buffers = {**without_overlap(self._buffers, layout), layout: {}}
        buffers = self._buffers[layout]
        if purpose not in buffers:
            buffers[purpose] = torch.zeros(numel, dtype=dtype, device=device)
        return buffers[purpose]

    def work(self, like: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return a tensor shaped as `like`, in `dtype` or wider, that is anybody's again once the caller yields."""
        dtype = torch.promote_types(like.dtype, dtype)
        if self._work is None or self._work.numel() < like.numel() or self._work.dtype != dtype:
            self._work = torch.empty(like.numel(), dtype=dtype, device=like.device)
        return self._work[: like.numel()].view(like.shape)


def chunks(rows: int, device: torch.device, *, row_size: int = 1) -> Iterator[slice]:
    """Return slices that cover `rows` of `row_size` elements: on a CPU small ones, on CUDA a single one."""
    size = max(_CHUNK // row_size, 1) if device.type == "cpu" else max(rows, 1)
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))
