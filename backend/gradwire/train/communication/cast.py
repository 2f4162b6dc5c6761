"""fp16 and bf16: gradients are rounded to 16 bits for the wire and summed in fp32.

A reduce-scatter and an all-gather, as in a bandwidth-optimal all-reduce (Thakur, Rabenseifner, Gropp 2005), but with
the sum of each part formed by one rank in fp32 and in rank order. An all-reduce in the 16-bit dtype sends as much
(2(n-1)/n of the rounded gradients) and rounds at every one of its n-1 additions. Here each value is rounded twice:

    |average - exact| <= u mean_i |g_i| + u (1 + u) mean_i |g_i|,   u = 2^-8 (bf16) or 2^-11 (fp16),

at any world size, plus fp32's rounding and the dtype's underflow. A gradient beyond fp16's 65,504 becomes infinite.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.distributed import Work

from gradwire.train.communication.interface import Bucket, Tables
from gradwire.train.communication.lanes import Lanes
from gradwire.train.communication.message import arithmetic_dtype
from gradwire.train.communication.scratch import Scratch, chunks


class Cast:
    """Averages buckets in `wire_dtype`; keeps no state."""

    lane_count = 2

    def __init__(self, wire_dtype: torch.dtype) -> None:
        self._wire_dtype = wire_dtype
        self._scratch = Scratch()

    def average(self, bucket: Bucket, lanes: Lanes) -> Iterator[Work]:
        """Average the whole bucket."""
        flat, ranks = bucket.flat, lanes.world_size
        part = -(-flat.numel() // ranks)
        kind = {"dtype": self._wire_dtype, "device": flat.device}
        # The padding at the end stays zero: nothing else is ever written there.
        sent = self._scratch.get(bucket.layout, "sent", part * ranks, **kind)
        received = self._scratch.get(bucket.layout, "received", part * ranks, **kind)
        own = self._scratch.get(bucket.layout, "own", part, **kind)
        means = self._scratch.get(bucket.layout, "means", part, dtype=arithmetic_dtype(flat), device=flat.device)
        sent[: flat.numel()].copy_(flat)
        yield lanes.all_to_all(0, received, sent)

        for chunk in chunks(part, flat.device):
            contributions = received.view(ranks, part)[:, chunk]
            mean = means[chunk].copy_(contributions[0])
            for contribution in contributions[1:]:
                mean.add_(self._scratch.work(mean).copy_(contribution))
            own[chunk].copy_(mean.div_(ranks))
        yield lanes.all_gather(1, sent, own)

        flat.copy_(sent[: flat.numel()])

    def shared_state(self) -> Tables:
        return {}

    def local_state(self) -> Tables:
        return {}

    def load(self, shared: Tables, local: Tables | None) -> None:
        pass
