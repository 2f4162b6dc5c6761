"""Alternating PowerSGD: one factor per step, P and Q in turn, so one collective per bucket and step.

Zhang, Zhang, Shi, Chu, Li: Evaluation and Optimization of Gradient Compression for Distributed Deep Learning (ACP-SGD),
ICDCS 2023, arXiv:2306.08881, algorithm 2. With M = gradient + error of one rank:

    steps 0, 2, ...: Q = orthonormal(Q);  P_own = M Q;    P = mean of P_own;  error = M - P_own Q^T
    steps 1, 3, ...: P = orthonormal(P);  Q_own = M^T P;  Q = mean of Q_own;  error = M - P Q_own^T

and average = P Q^T. Half of PowerSGD's bytes and latencies, for half a power iteration per step. Everything that is
not worth factoring travels in the same message; errors are updated while it does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
    errors_of,
    factor_entries,
    low_rank_plan,
    orthonormal,
    random_factor,
    subtract_product,
    write_product,
)
from gradwire.train.communication.message import Message, add_gradients, arithmetic_dtype, average_whole
from gradwire.train.communication.per_parameter import PerParameter
from gradwire.train.communication.unused import find_unused


class AlternatingPowerSGD:
    """Averages buckets by ACP-SGD from `start_step` on, by plain all-reduce before."""

    lane_count = 1

    def __init__(self, options: LowRankOptions) -> None:
        self._options = options
        self._errors = PerParameter()
        self._left_factors = PerParameter()
        self._right_factors = PerParameter()
        self._plans: dict[Layout, tuple[LowRankPlan, Message, Message]] = {}

    def average(self, bucket: Bucket, lanes: Lanes) -> Iterator[Work]:
        """Average the matrices of `bucket` to rank `matrix_approximation_rank`, everything else in full."""
        if bucket.step < self._options.start_step:
            yield from average_whole(bucket, lanes)
            return
        sends_left = (bucket.step - self._options.start_step) % 2 == 0
        plan, left_message, right_message = self._plan_of(bucket)
        message = left_message if sends_left else right_message
        kept_left, kept_right = self._kept(bucket, plan)
        errors = errors_of(self._errors, bucket.layout, bucket.flat) if self._options.error_feedback else None
        unused = find_unused(bucket, errors) if self._options.unused else None
        if errors is not None:
            add_gradients(errors, bucket.flat)
        matrices = bucket.flat.to(message.values.dtype) if errors is None else errors
        if sends_left:
            rights = [orthonormal(right.transpose(1, 2)).transpose(1, 2) for right in plan.right_factors(kept_right)]
            lefts = plan.left_factors(message.parts)
            for batch, left, right in zip(plan.batches, lefts, rights, strict=True):
                torch.bmm(batch.view(matrices), right.transpose(1, 2), out=left)
        else:
            lefts = [orthonormal(left) for left in plan.left_factors(kept_left)]
            rights = plan.right_factors(message.parts)
            for batch, left, right in zip(plan.batches, lefts, rights, strict=True):
                torch.bmm(left.transpose(1, 2), batch.view(matrices), out=right)
        plan.pack_whole(matrices, message, unused)
        sending = message.send(lanes, 0)
        if errors is not None:
            for batch, left, right in zip(plan.batches, lefts, rights, strict=True):
                subtract_product(errors, batch, left, right)
            plan.keep_whole_errors(errors, message)
        yield sending

        message.receive(lanes.world_size)
        if discard_if_not_finite(message, bucket.flat, errors):
            return
        kept, sent = (kept_left, lefts) if sends_left else (kept_right, rights)
        for target, factor in zip(kept, sent, strict=True):
            target.copy_(factor.reshape(-1))
        clean(errors, *kept)
        for batch, left, right in zip(plan.batches, lefts, rights, strict=True):
            write_product(bucket.flat, batch, left, right)
        plan.unpack_whole(message, bucket.flat)
        if unused is not None:
            unused.settle(message.parts[-1], errors, bucket.flat)

    def shared_state(self) -> Tables:
        return {"left_factors": self._left_factors.state(), "right_factors": self._right_factors.state()}

    def local_state(self) -> Tables:
        return {"errors": self._errors.state()}

    def load(self, shared: Tables, local: Tables | None) -> None:
        self._plans = {}
        self._left_factors.load(shared["left_factors"])
        self._right_factors.load(shared["right_factors"])
        self._errors.load(local["errors"] if local else {})

    def _plan_of(self, bucket: Bucket) -> tuple[LowRankPlan, Message, Message]:
        known = self._plans.get(bucket.layout)
        if known is not None:
            return known
        plan = low_rank_plan(bucket.layout, self._options)

        def message(factor_sizes: Sequence[int]) -> Message:
            sizes = plan.with_whole(factor_sizes)
            values = torch.zeros(sum(sizes), dtype=arithmetic_dtype(bucket.flat), device=bucket.flat.device)
            return Message(values, sizes, self._options.wire_dtype or bucket.flat.dtype)

        made = (plan, message(plan.left_sizes()), message(plan.right_sizes()))
        self._plans = {**without_overlap(self._plans, bucket.layout), bucket.layout: made}
        return made

    def _kept(self, bucket: Bucket, plan: LowRankPlan) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Return the last averaged left and right factors, one 1-D tensor per batch."""
        like = torch.empty(0, dtype=arithmetic_dtype(bucket.flat), device=bucket.flat.device)
        kept = []
        for table, left, sizes in (
            (self._left_factors, True, plan.left_sizes()),
            (self._right_factors, False, plan.right_sizes()),
        ):
            flat = table.flat(
                bucket.layout,
                factor_entries(plan.batches, left=left),
                like=like,
                create=random_factor(self._options.start_step),
            )
            kept.append(flat.split(sizes))
        return kept[0], kept[1]
