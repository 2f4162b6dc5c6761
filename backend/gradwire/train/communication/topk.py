"""topk: each rank sends its largest gradient elements and keeps the others for later steps.

Sparsification with error feedback: Aji, Heafield 2017, arXiv:1704.05021; Stich, Cordonnier, Jaggi 2018,
arXiv:1809.07599. With M = gradient + error: the k elements of M with the largest magnitude are gathered by every rank
and summed in rank order; the error is M without them. Each rank sends k x 8 bytes to each other one, so the bytes grow
with the world size: from 1 / fraction ranks on, a plain fp32 all-reduce sends no more.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.distributed import Work

from gradwire.train.communication.interface import Bucket, Tables
from gradwire.train.communication.lanes import Lanes
from gradwire.train.communication.low_rank import errors_of
from gradwire.train.communication.message import add_gradients
from gradwire.train.communication.per_parameter import PerParameter
from gradwire.train.communication.scratch import Scratch
from gradwire.train.communication.unused import find_unused

_SAMPLE = 16384


class TopK:
    """Averages buckets from `fraction` of each rank's elements. `unused`: some ranks may not use a parameter."""

    lane_count = 1

    def __init__(self, *, fraction: float, error_feedback: bool, unused: bool) -> None:
        self._fraction = fraction
        self._error_feedback = error_feedback
        self._unused = unused
        self._errors = PerParameter()
        self._scratch = Scratch()

    def average(self, bucket: Bucket, lanes: Lanes) -> Iterator[Work]:
        """Average the whole bucket."""
        flat, layout, ranks = bucket.flat, bucket.layout, lanes.world_size
        errors = errors_of(self._errors, layout, flat) if self._error_feedback else None
        unused = find_unused(bucket, errors) if self._unused else None
        if errors is not None:
            add_gradients(errors, flat)
        matrices = flat.float() if errors is None else errors
        count = max(1, round(self._fraction * flat.numel()))
        indices = largest(matrices, count, self._scratch)
        values = matrices[indices].float()
        flags = [unused.flags.to(torch.int32)] if unused is not None else []
        sent = torch.cat([values.view(torch.int32), indices.to(torch.int32), *flags])
        received = torch.empty(ranks * sent.numel(), dtype=torch.int32, device=flat.device)
        work = lanes.all_gather(0, received, sent)
        if errors is not None:
            errors[indices] -= values
        yield work

        parts = received.view(ranks, sent.numel())
        average = flat.zero_() if flat.dtype == matrices.dtype else torch.zeros_like(matrices)
        gathered = parts[:, :count].contiguous().view(torch.float32).to(average.dtype).div_(ranks)
        for part, their_values in zip(parts, gathered, strict=True):
            average.index_add_(0, part[count : 2 * count].long(), their_values)
        if average is not flat:
            flat.copy_(average)
        if errors is not None:
            if flat.is_cuda:
                errors.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
            elif not bool(torch.isfinite(gathered).all()):
                # An overflow somewhere (fp16 loss scaling makes some on purpose) must not stay in the error for ever.
                errors.zero_()
        if unused is not None:
            unused.settle(parts[:, 2 * count :].sum(0), errors, flat)

    def shared_state(self) -> Tables:
        return {}

    def local_state(self) -> Tables:
        return {"errors": self._errors.state()}

    def load(self, shared: Tables, local: Tables | None) -> None:
        self._errors.load(local["errors"] if local else {})


def largest(values: Tensor, count: int, scratch: Scratch) -> Tensor:
    """Return the indices of `count` elements of 1-D `values` with the largest magnitude, NaN being the largest.

    torch.topk over all elements is slow on a CPU (20 ns each): there a threshold from a sample leaves few candidates.
    """
    magnitudes = torch.abs(values, out=scratch.work(values))
    if not values.is_cuda and values.numel() > 4 * _SAMPLE:
        sample = magnitudes[:: values.numel() // _SAMPLE]
        keep = min(len(sample), int(1.5 * count / values.numel() * len(sample)) + 16)
        threshold = sample.topk(keep).values[-1]
        candidates = torch.from_numpy(np.flatnonzero((~(magnitudes < threshold)).numpy()))
        if len(candidates) >= count:
            return candidates[magnitudes[candidates].topk(count, sorted=False).indices]
    return magnitudes.topk(count, sorted=False).indices
