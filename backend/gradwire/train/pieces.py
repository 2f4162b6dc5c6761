"""The part that one rank holds of a tensor that several ranks hold together, and how it is found again among parts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.distributed.tensor import DTensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """`local` is the box of a tensor of `shape` that begins at `offsets`; it may be empty.

    `is_copy`: another rank saves the same box.
    """

    local: Tensor
    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    is_copy: bool

    def saved(self) -> dict[str, Any]:
        """Return the piece as tensors, in the machine's memory, and plain values."""
        local = self.local.cpu()
        if local.untyped_storage().nbytes() > local.numel() * local.element_size():
            # A file holds the whole storage of what is saved, and this is a part of one.
            local = local.clone()
        return {"local": local, "offsets": list(self.offsets), "shape": list(self.shape)}

    def take(self, saved: Mapping[str, Any]) -> int:
        """Copy what `saved`, a piece of the same tensor, has of this one; return how many elements that were."""
        theirs: Tensor = saved["local"]
        boxes = []
        for own_start, own_size, start, size in zip(
            self.offsets, self.local.shape, saved["offsets"], theirs.shape, strict=True
        ):
            first, last = max(own_start, start), min(own_start + own_size, start + size)
            if first >= last:
                return 0
            boxes.append((slice(first - own_start, last - own_start), slice(first - start, last - start)))
        self.local[tuple(own for own, _ in boxes)].copy_(theirs[tuple(their for _, their in boxes)])
        return math.prod(own.stop - own.start for own, _ in boxes)


def piece_of(tensor: Tensor, *, is_copy: bool) -> Piece:
    """Return what this rank holds of `tensor`; `is_copy` counts where it is no DTensor, whose mesh says it."""
    if not isinstance(tensor, DTensor):
        whole = tuple(tensor.shape)
        return Piece(local=tensor.detach(), offsets=(0,) * len(whole), shape=whole, is_copy=is_copy)
    [chunk] = tensor.__create_chunk_list__()
    places = zip(tensor.placements, tensor.device_mesh.get_coordinate() or (), strict=True)
    return Piece(
        local=tensor.to_local().detach(),
        offsets=tuple(chunk.offsets),
        shape=tuple(tensor.shape),
        is_copy=any(placement.is_replicate() and place for placement, place in places),
    )
