"""PowerSGD: each gradient matrix is averaged as a product of two thin factors, with error feedback.

Vogels, Karimireddy, Jaggi: PowerSGD, NeurIPS 2019, arXiv:1905.13727, algorithms 1 and 2. With M = gradient + error
of one rank and Q from the last step (warm start) or random:

    P = mean over ranks of M Q;  P = orthonormal(P);  Q_own = M^T P;  Q = mean of Q_own
    average = P Q^T;  error = M - P Q_own^T

The error is what this rank's own factor leaves, as in the paper; torch's hook keeps M - average. Both have the same
mean, so the averages agree, but torch's also sums up every difference between ranks, for ever: it grows with the
number of steps, and with it what a 16-bit wire rounds away.

Two collectives per bucket: P with everything that is not worth factoring, then Q. Errors are updated while Q travels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributed import Work

from gradwire.train.communication.interface import Bucket, Tables
from gradwire.train.communication.lanes import Lanes
from gradwire.train.communication.layout import Layout, without_overlap
from gradwire.train.communication.low_rank import (
    LowRankOptions,
    LowRankPlan,
    clean,
    discard_if_not_finite,
    draw,
    errors_of,
    factor_entries,
    low_rank_plan,
    orthonormal,
    random_factor,
    subtract_product,
    write_product,
)
from gradwire.train.communication.message import Message, arithmetic_dtype, average_whole
from gradwire.train.communication.per_parameter import PerParameter
from gradwire.train.communication.unused import find_unused


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Buffers:
    """One bucket's messages, and views: `left` [matrices, rows, rank], `right` [matrices, rank, columns]."""

    plan: LowRankPlan
    first: Message
    second: Message
    left: list[Tensor]
    right: list[Tensor]


class PowerSGD:
    """Averages buckets by PowerSGD from `start_step` on, by plain all-reduce before."""

    lane_count = 2

    def __init__(self, options: LowRankOptions) -> None:
        self._options = options
        self._errors = PerParameter()
        self._right_factors = PerParameter()
        self._buffers: dict[Layout, _Buffers] = {}

    def average(self, bucket: Bucket, lanes: Lanes) -> Iterator[Work]:
        """Average the matrices of `bucket` to rank `matrix_approximation_rank`, everything else in full."""
        options = self._options
        if bucket.step < options.start_step:
            yield from average_whole(bucket, lanes)
            return
        buffers = self._buffers_of(bucket)
        plan, first, second = buffers.plan, buffers.first, buffers.second
        errors = errors_of(self._errors, bucket.layout, bucket.flat) if options.error_feedback else None
        unused = find_unused(bucket, errors) if options.unused else None
        matrices = bucket.flat.to(first.values.dtype) if errors is None else errors
        if not options.warm_start:
            draw(second.values, factor_entries(plan.batches, left=False), bucket.step)
        for batch, left, right in zip(plan.batches, buffers.left, buffers.right, strict=True):
            if errors is not None:
                # Matrix by matrix: what the addition has just written is still in the processor's cache.
                batch.add_gradients(errors, bucket.flat)
            torch.bmm(batch.view(matrices), right.transpose(1, 2), out=left)
        if errors is not None:
            plan.add_whole_gradients(errors, bucket.flat)
        plan.pack_whole(matrices, first, unused)
        sending = first.send(lanes, 0)
        if errors is not None:
            plan.keep_whole_errors(errors, first)
        yield sending

        first.receive(lanes.world_size)
        if discard_if_not_finite(first, bucket.flat, errors):
            return
        bases = [orthonormal(left) for left in buffers.left]
        if plan.batches:
            for batch, basis, right in zip(plan.batches, bases, buffers.right, strict=True):
                torch.bmm(basis.transpose(1, 2), batch.view(matrices), out=right)
            sending = second.send(lanes, 1)
            if errors is not None:
                for batch, basis, right in zip(plan.batches, bases, buffers.right, strict=True):
                    subtract_product(errors, batch, basis, right)
            yield sending

            second.receive(lanes.world_size)
            if discard_if_not_finite(second, bucket.flat, errors):
                # The next step starts from this factor, and would never be finite again.
                draw(second.values, factor_entries(plan.batches, left=False), bucket.step)
                return
            for batch, basis, right in zip(plan.batches, bases, buffers.right, strict=True):
                write_product(bucket.flat, batch, basis, right)
        plan.unpack_whole(first, bucket.flat)
        if unused is not None:
            unused.settle(first.parts[-1], errors, bucket.flat)
        clean(errors, second.values)

    def shared_state(self) -> Tables:
        return {"right_factors": self._right_factors.state()}

    def local_state(self) -> Tables:
        return {"errors": self._errors.state()}

    def load(self, shared: Tables, local: Tables | None) -> None:
        self._buffers = {}
        self._right_factors.load(shared["right_factors"])
        self._errors.load(local["errors"] if local else {})

    def _buffers_of(self, bucket: Bucket) -> _Buffers:
        known = self._buffers.get(bucket.layout)
        if known is not None:
            return known
        plan = low_rank_plan(bucket.layout, self._options)
        wire_dtype = self._options.wire_dtype or bucket.flat.dtype
        sizes = plan.with_whole(plan.left_sizes())
        like = torch.empty(0, dtype=arithmetic_dtype(bucket.flat), device=bucket.flat.device)
        first = Message(like.new_zeros(sum(sizes)), sizes, wire_dtype)
        # The right factors of the last step lie where the next message is built: a warm start copies nothing.
        right = self._right_factors.flat(
            bucket.layout,
            factor_entries(plan.batches, left=False),
            like=like,
            create=random_factor(bucket.step),
        )
        second = Message(right, plan.right_sizes(), wire_dtype)
        buffers = _Buffers(
            plan=plan,
            first=first,
            second=second,
            left=plan.left_factors(first.parts),
            right=plan.right_factors(second.parts),
        )
        self._buffers = {**without_overlap(self._buffers, bucket.layout), bucket.layout: buffers}
        return buffers
