"""Tensors that belong to parameters, kept in one flat buffer per bucket, through changes of the buckets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gradwire.train.communication.layout import Layout, without_overlap


class PerParameter:
    """A table of one 1-D tensor per parameter, whose entries for one bucket lie side by side.

    DDP forms other buckets after the first step, and a resumed run starts with other buckets than it ended with:
    entries are found by the parameter's name and move with it.
    """

    def __init__(self) -> None:
        self._flats: dict[Layout, Tensor] = {}
        self._entries: dict[str, Tensor] = {}

    def flat(
        self,
        layout: Layout,
        entries: Sequence[tuple[str, int]],
        *,
        like: Tensor,
        padded: int = 0,
        create: Callable[[str, int], Tensor] | None = None,
    ) -> Tensor:
        """Return the buffer of `layout`: the `entries` (name, elements) in order, then zeros up to `padded` elements.

        A name without an entry of that size starts as `create(name, elements)`, or as zeros. The buffer has
        the dtype and device of `like`.
        """
        known = self._flats.get(layout)
        if known is not None:
            return known
        total = sum(numel for _, numel in entries)
        flat = torch.zeros(max(total, padded), dtype=like.dtype, device=like.device)
        offset = 0
        for name, numel in entries:
            piece = flat[offset : offset + numel]
            saved = self._entries.get(name)
            if saved is not None and saved.numel() == numel:
                piece.copy_(saved)
            elif create is not None:
                piece.copy_(create(name, numel))
            self._entries[name] = piece
            offset += numel
        # Buffers of buckets that no longer exist are let go: they are as large as the gradients.
        self._flats = {**without_overlap(self._flats, layout), layout: flat}
        return flat

    def state(self) -> dict[str, Tensor]:
        """Return a copy of every entry."""
        return {name: entry.clone() for name, entry in self._entries.items()}

    def load(self, entries: dict[str, Tensor]) -> None:
        """Replace everything by copies of `entries`."""
        self._flats = {}
        self._entries = {name: entry.clone() for name, entry in entries.items()}
