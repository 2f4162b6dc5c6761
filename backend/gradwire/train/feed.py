"""Reads a rank's micro-batches of one step, and says what each one weighs in it."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gradwire.documents.plan_schema import Plan
from gradwire.train.data import IGNORED, SampleOrder, Text, cut, leave_out
from gradwire.train.engines.engine import MicroBatch
from gradwire.train.weighting import count_over_ranks, token_weights


@dataclass(frozen=True, kw_only=True, slots=True)
class Feed:
    """What a rank reads its samples from, and the device that they go to."""

    text: Text
    order: SampleOrder
    sequence_length: int
    device: Any


def read_micro_batches(
    plan: Plan, feed: Feed, *, step: int, data_parallel_rank: int, counts_samples: bool
) -> list[MicroBatch]:
    """Return the micro-batches of optimizer step `step` for one data-parallel rank.

    All ranks call it together; of those that read the same batches (a pipeline's), one `counts_samples`.
    """
    recipe = plan.recipe
    arrays, checksums = [], []
    for micro_step in range(plan.batch.gradient_accumulation):
        starts = feed.order.starts(step=step, micro_step=micro_step, data_parallel_rank=data_parallel_rank)
        tokens, labels = cut(feed.text, starts, feed.sequence_length)
        if recipe.data.min_labels is not None:
            labels = leave_out(labels, starts, min_labels=recipe.data.min_labels, seed=recipe.training.seed)
        arrays.append((tokens, labels))
        checksums.append(zlib.crc32(tokens.tobytes()))
    label_counts = [int((labels != IGNORED).sum()) for _, labels in arrays]
    weights = _weights(plan, feed, label_counts, counts_samples=counts_samples)
    return [
        MicroBatch(
            tokens=torch.from_numpy(tokens).to(feed.device),
            labels=torch.from_numpy(labels).to(feed.device),
            label_count=label_count,
            weight=weight,
            checksum=checksum,
        )
        for (tokens, labels), label_count, weight, checksum in zip(
            arrays, label_counts, weights, checksums, strict=True
        )
    ]


def _weights(plan: Plan, feed: Feed, label_counts: Sequence[int], *, counts_samples: bool) -> list[float]:
    if plan.recipe.training.loss_weighting == "micro-batch" or plan.recipe.data.min_labels is None:
        # Where all labels count, every micro-batch has equally many.
        return [1.0] * len(label_counts)
    [total] = count_over_ranks([sum(label_counts) if counts_samples else 0], feed.device)
    return token_weights(label_counts, total=total, data_parallel_size=plan.batch.data_parallel_size)
