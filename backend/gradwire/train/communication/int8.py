"""int8: gradients travel as 8-bit integers with one scale per block, at a quarter of fp32's bytes at any world size.

Block-wise absolute-maximum quantisation (Dettmers et al.: 8-bit Optimizers via Block-wise Quantization, 2022,
arXiv:2110.02861, with linear levels) in a reduce-scatter and an all-gather as in ZeRO++ (Wang et al. 2023,
arXiv:2306.10209, section 3.3), with error feedback (Karimireddy et al. 2019, arXiv:1901.09847). A block of x becomes
q = round(x / s), s = max|x| / 127, so that |x - s q| <= s/2.

Each rank quantises M = gradient + error and sends the n-th part to rank n; that rank sums in fp32 in rank order,
divides, quantises the mean and sends it to all. Nothing is lost: what the first rounding left stays in this rank's
error, and n times what the second left in the error of the rank that did it, n because errors enter a mean.
Without the error, |average - exact| <= mean_i s_i / 2 + s / 2 for an element of blocks with scales s_i and s.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.distributed import Work

from gradwire.train.communication.interface import Bucket, Tables
from gradwire.train.communication.lanes import Lanes
from gradwire.train.communication.message import add_gradients, arithmetic_dtype
from gradwire.train.communication.per_parameter import PerParameter
from gradwire.train.communication.scratch import Scratch, chunks
from gradwire.train.communication.unused import find_unused

# Blocks with a smaller scale are sent as zero: its reciprocal would overflow.
_SMALLEST_SCALE = 1e-36


class Int8:
    """Averages buckets in 8 bits, `block_size` elements per scale. `unused`: some ranks may not use a parameter."""

    lane_count = 2

    def __init__(self, *, block_size: int, error_feedback: bool, unused: bool) -> None:
        self._block_size = block_size
        self._error_feedback = error_feedback
        self._unused = unused
        self._errors = PerParameter()
        self._scratch = Scratch()

    def average(self, bucket: Bucket, lanes: Lanes) -> Iterator[Work]:
        """Average the whole bucket."""
        flat, layout, ranks, size = bucket.flat, bucket.layout, lanes.world_size, self._block_size
        blocks = -(-flat.numel() // (ranks * size))
        values = self._values(bucket, ranks * blocks * size)
        unused = find_unused(bucket, values) if self._unused else None
        add_gradients(values, flat)
        parts = values.view(ranks, blocks, size)
        body = blocks * (size + 4)
        width = body + (4 * len(layout.slots) if unused else 0)
        kind = {"dtype": torch.uint8, "device": flat.device}
        sent = self._scratch.get(layout, "sent", ranks * width, **kind)
        received = self._scratch.get(layout, "received", ranks * width, **kind)
        own = self._scratch.get(layout, "own", body, **kind)
        gathered = self._scratch.get(layout, "gathered", ranks * body, **kind)
        for part, message in zip(parts, sent.view(ranks, width), strict=True):
            quantise(part, *split(message[:body], size), self._scratch)
            if unused is not None:
                message[body:].view(torch.float32).copy_(unused.flags)
        yield lanes.all_to_all(0, received, sent)

        messages = received.view(ranks, width)
        levels, scales = split(own, size)
        means = self._scratch.get(layout, "means", blocks * size, dtype=values.dtype, device=flat.device).view(
            blocks, size
        )
        for chunk in chunks(blocks, flat.device, row_size=size):
            mean = means[chunk].zero_()
            for message in messages:
                their_levels, their_scales = split(message[:body], size)
                mean.addcmul_(self._scratch.work(mean).copy_(their_levels[chunk]), their_scales[chunk].to(mean.dtype))
            mean.div_(ranks)
            quantise(mean, levels[chunk], scales[chunk], self._scratch)
            parts[lanes.rank, chunk].add_(mean, alpha=ranks)
        yield lanes.all_gather(1, gathered, own)

        finite = True
        for number, message in enumerate(gathered.view(ranks, body)):
            levels, scales = split(message, size)
            finite = finite and (flat.is_cuda or bool(torch.isfinite(scales).all()))
            for chunk in chunks(blocks, flat.device, row_size=size):
                first = (number * blocks + chunk.start) * size
                target = flat[first : first + (chunk.stop - chunk.start) * size]
                average = self._scratch.work(levels[chunk], values.dtype).copy_(levels[chunk]).mul_(scales[chunk])
                target.copy_(average.view(-1)[: target.numel()])
        if flat.is_cuda:
            values.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        elif not finite:
            # An overflow somewhere (fp16 loss scaling makes some on purpose) must not stay in the error for ever.
            values.zero_()
        if unused is not None:
            users = messages[:, body:].contiguous().view(torch.float32).sum(0)
            unused.settle(users, values, flat)

    def shared_state(self) -> Tables:
        return {}

    def local_state(self) -> Tables:
        return {"errors": self._errors.state()}

    def load(self, shared: Tables, local: Tables | None) -> None:
        self._errors.load(local["errors"] if local else {})

    def _values(self, bucket: Bucket, padded: int) -> Tensor:
        """Return the errors of `bucket`, zeros without error feedback, padded with zeros."""
        like = torch.empty(0, dtype=arithmetic_dtype(bucket.flat), device=bucket.flat.device)
        if not self._error_feedback:
            values = self._scratch.get(bucket.layout, "values", padded, dtype=like.dtype, device=like.device)
            return values.zero_()
        entries = [(slot.name, slot.numel) for slot in bucket.layout.slots]
        return self._errors.flat(bucket.layout, entries, like=like, padded=padded)


def split(message: Tensor, block_size: int) -> tuple[Tensor, Tensor]:
    """Return the views (levels as int8 [blocks, block_size], scales as float32 [blocks, 1]) of a 1-D byte message."""
    blocks = message.numel() // (block_size + 4)
    levels = message[: blocks * block_size].view(torch.int8).view(blocks, block_size)
    return levels, message[blocks * block_size :].view(torch.float32).view(blocks, 1)


def quantise(values: Tensor, levels: Tensor, scales: Tensor, scratch: Scratch) -> None:
    """Write levels and scales of `values` [blocks, block_size], in which the rounding errors are left.

    An element that is not finite has no level: its block's scale is not finite either, and says so to all.
    """
    for chunk in chunks(values.shape[0], values.device, row_size=values.shape[1]):
        block = values[chunk]
        scale = torch.maximum(block.amax(1, keepdim=True), block.amin(1, keepdim=True).neg_()).div_(127)
        # As it travels: the error is what the others will not see.
        scale = scale.to(scales.dtype)
        too_small = scale < _SMALLEST_SCALE
        scale.masked_fill_(too_small, 0)
        rounded = torch.mul(block, scale.reciprocal().masked_fill_(too_small, 0), out=scratch.work(block)).round_()
        levels[chunk].copy_(rounded)
        scales[chunk].copy_(scale)
        block.addcmul_(rounded, scale.to(block.dtype), value=-1)
