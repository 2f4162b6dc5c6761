"""What each micro-batch's mean loss weighs in a step, so that every label of every rank counts the same."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed


def token_weights(label_counts: Sequence[int], *, total: int, data_parallel_size: int) -> list[float]:
    """Return the weights of one rank's micro-batches in a step of `total` labels over all ranks; 1 on average.

    Backends average losses over micro-steps and gradients over data-parallel ranks, which counts each micro-batch the
    same. Weighted by n x micro-steps x ranks / total, for its n labels, the step's loss becomes the sum over all labels
    divided by their number (https://github.com/huggingface/transformers/pull/34191 is what happens without).
    """
    even_share = total / (len(label_counts) * data_parallel_size)
    return [count / even_share for count in label_counts]


def count_over_ranks(counts: Sequence[int], device: torch.device) -> list[int]:
    """Return the sums of `counts` over all ranks; all of them call it together."""
    summed = torch.tensor(counts, dtype=torch.int64, device=device)
    torch.distributed.all_reduce(summed)
    return [int(count) for count in summed.tolist()]
