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
from gradwire.train.communication.layout import Layout, used_slots
from gradwire.train.communication.message import add_gradients
from gradwire.train.communication.per_parameter import PerParameter

# Blocks whose largest element is smaller are sent as zero: their scale would not be a normal number.
_SMALLEST_SCALE = 1e-36


class Int8:
    """Averages buckets in 8 bits, `block_size` elements per scale. `unused`: some ranks may not use a parameter."""

    lane_count = 2

    def __init__(self, *, block_size: int, error_feedback: bool, unused: bool) -> None:
        self._block_size = block_size
        self._error_feedback = error_feedback
        self._unused = unused
        self._errors = PerParameter()

    def average(self, bucket: Bucket, lanes: Lanes) -> Iterator[Work]:
        """Average the whole bucket."""
        flat, layout, ranks = bucket.flat, bucket.layout, lanes.world_size
        part = -(-flat.numel() // (ranks * self._block_size)) * self._block_size
        matrices = self._with_errors(bucket, part * ranks)
        blocks = matrices.view(ranks, part // self._block_size, self._block_size)
        levels, scales = quantise(blocks)
        flags = used_slots(flat, layout) if self._unused else None
        sent = pack(levels, scales, flags)
        received = torch.empty_like(sent)
        work = lanes.all_to_all(0, received.view(-1), sent.view(-1))
        if flags is None:
            blocks.addcmul_(levels, scales, value=-1)
        yield work

        values, received_scales, received_flags = unpack(
            received, part, self._block_size, len(layout.slots) if self._unused else 0
        )
        dropped = self._never_used(layout, received_flags)
        if flags is not None:
            forget(levels.view(-1), dropped)
            blocks.addcmul_(levels, scales, value=-1)
        mean = torch.zeros_like(blocks[0])
        for contribution, scale in zip(values, received_scales, strict=True):
            mean.addcmul_(contribution.to(mean.dtype), scale)
        mean.div_(ranks)
        forget(mean.view(-1), dropped, start=lanes.rank * part)
        levels, scales = quantise(mean)
        own = pack(levels.unsqueeze(0), scales.unsqueeze(0), None)[0]
        gathered = torch.empty(ranks * own.numel(), dtype=torch.uint8, device=flat.device)
        work = lanes.all_gather(1, gathered, own)
        blocks[lanes.rank].add_(mean.addcmul_(levels, scales, value=-1), alpha=ranks)
        yield work

        values, scales, _ = unpack(gathered.view(ranks, -1), part, self._block_size, 0)
        average = values.to(matrices.dtype).mul_(scales).view(-1)[: flat.numel()]
        flat.copy_(average)
        if flat.is_cuda:
            matrices.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        elif not bool(torch.isfinite(scales).all()):
            # An overflow somewhere (fp16 loss scaling makes some on purpose) must not stay in the error for ever.
            matrices.zero_()

    def shared_state(self) -> Tables:
        return {}

    def local_state(self) -> Tables:
        return {"errors": self._errors.state()}

    def load(self, shared: Tables, local: Tables | None) -> None:
        self._errors.load(local["errors"] if local else {})

    def _with_errors(self, bucket: Bucket, padded: int) -> Tensor:
        """Return gradient + error of `bucket`, padded with zeros; what is left of it becomes the error."""
        like = torch.empty(0, dtype=torch.float32, device=bucket.flat.device)
        if self._error_feedback:
            entries = [(slot.name, slot.numel) for slot in bucket.layout.slots]
            matrices = self._errors.flat(bucket.layout, entries, like=like, padded=padded)
        else:
            matrices = like.new_zeros(padded)
        add_gradients(matrices, bucket.flat)
        return matrices

    def _never_used(self, layout: Layout, flags: Tensor | None) -> list[tuple[int, int]]:
        """Return (start, end) of the parameters that no rank used: DDP drops their average, so the error keeps it."""
        if flags is None:
            return []
        used = flags.any(dim=0).tolist()
        return [(slot.offset, slot.end) for slot, any_used in zip(layout.slots, used, strict=True) if not any_used]


def quantise(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return (levels, scales) of `blocks` [..., blocks, block_size]: whole numbers in -127..127, still as floats, and
    one scale per block [..., blocks, 1]. A block with an element that is not finite gets such a scale."""
    scales = torch.maximum(blocks.amax(dim=-1, keepdim=True), blocks.amin(dim=-1, keepdim=True).neg_()).div_(127)
    too_small = scales < _SMALLEST_SCALE
    scales.masked_fill_(too_small, 0)
    levels = blocks * scales.reciprocal().masked_fill_(too_small, 0)
    return levels.round_(), scales


def pack(levels: Tensor, scales: Tensor, flags: Tensor | None) -> Tensor:
    """Return bytes [parts, values then scales then flags] from [parts, blocks, block_size] and [parts, blocks, 1]."""
    parts, values, blocks = levels.shape[0], levels[0].numel(), scales.shape[1]
    width = values + 4 * blocks
    message = torch.empty(
        (parts, width + (len(flags) if flags is not None else 0)), dtype=torch.uint8, device=levels.device
    )
    # A number that is not finite has no level; its block's scale says so.
    message[:, :values].view(torch.int8).copy_(levels.view(parts, values))
    message[:, values:width].copy_(scales.view(parts, blocks).view(torch.uint8))
    if flags is not None:
        message[:, width:].copy_(flags)
    return message


def unpack(message: Tensor, values: int, block_size: int, flags: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return (levels as int8 [parts, blocks, block_size], scales [parts, blocks, 1], flags [parts, flags] or None)."""
    blocks = values // block_size
    width = values + 4 * blocks
    levels = message[:, :values].view(torch.int8).unflatten(1, (blocks, block_size))
    scales = message[:, values:width].contiguous().view(torch.float32).unsqueeze(-1)
    return levels, scales, message[:, width:] if flags else None


def forget(values: Tensor, ranges: list[tuple[int, int]], *, start: int = 0) -> None:
    """Zero the elements of `values`, which begin at `start` of the bucket, that lie in `ranges`."""
    for first, end in ranges:
        values[max(first - start, 0) : max(end - start, 0)].zero_()
