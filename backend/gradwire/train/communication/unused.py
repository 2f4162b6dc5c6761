"""Keeps the error of parameters that no rank used in a step: DDP leaves their gradient alone and drops the average."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gradwire.train.communication.interface import Bucket
from gradwire.train.communication.layout import Layout

# Elements looked at before the rest of a gradient: almost always enough to see that it is not zero.
_PROBE = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class UnusedHere:
    """What this rank did not use: `flags` [slots] is 1.0 for each used parameter, `errors` has the others' errors."""

    layout: Layout
    flags: Tensor
    errors: Mapping[str, Tensor]

    def settle(self, users: Tensor, errors: Tensor | None, flat: Tensor) -> None:
        """Zero the average, and put back the error, of each slot for which `users` [slots], summed over ranks, is 0."""
        for slot, used in zip(self.layout.slots, (users > 0).tolist(), strict=True):
            if not used:
                flat[slot.offset : slot.end].zero_()
                if errors is not None:
                    errors[slot.offset : slot.end].copy_(self.errors[slot.name])


def find_unused(bucket: Bucket, errors: Tensor | None) -> UnusedHere:
    """Return which parameters of `bucket` this rank did not use, which DDP shows as a gradient of zeros.

    `errors` are those of the step before, with the bucket's offsets; the averaging that follows may change them.
    """
    used = [_any(bucket.flat[slot.offset : slot.end]) for slot in bucket.layout.slots]
    kept = {
        slot.name: errors[slot.offset : slot.end].clone()
        for slot, used_here in zip(bucket.layout.slots, used, strict=True)
        if errors is not None and not used_here
    }
    flags = torch.tensor(used, dtype=torch.float32, device=bucket.flat.device)
    return UnusedHere(layout=bucket.layout, flags=flags, errors=kept)


def _any(values: Tensor) -> bool:
    return bool(values[:_PROBE].count_nonzero()) or bool(values[_PROBE:].count_nonzero())
