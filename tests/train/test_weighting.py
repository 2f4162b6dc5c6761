"""Weights of micro-batches make a step's loss the mean over its labels; what is left out counts for nothing."""

from __future__ import annotations

import numpy
import pytest
import torch

from gradwire.train.data import IGNORED, leave_out
from gradwire.train.model import token_loss
from gradwire.train.weighting import token_weights


def test_weighted_means_are_the_mean_over_all_labels() -> None:
    counts = [[3, 1, 7], [2, 9, 5]]
    generator = numpy.random.default_rng(0)
    losses = [[generator.random(count) for count in rank] for rank in counts]
    total = sum(map(sum, counts))
    weights = [token_weights(rank, total=total, data_parallel_size=2) for rank in counts]
    # As a backend does it: the mean over micro-steps on each rank, then over ranks.
    ranks = [
        numpy.mean([loss.mean() * weight for loss, weight in zip(rank_losses, rank_weights, strict=True)])
        for rank_losses, rank_weights in zip(losses, weights, strict=True)
    ]
    everything = numpy.concatenate([loss for rank in losses for loss in rank])
    assert numpy.mean(ranks) == pytest.approx(everything.mean(), rel=1e-14)
    assert numpy.mean(weights) == pytest.approx(1.0)


def test_equal_counts_weigh_one() -> None:
    assert token_weights([6, 6], total=24, data_parallel_size=2) == [1.0, 1.0]


def test_first_labels_are_kept_and_how_many_depends_on_the_sequence_alone() -> None:
    labels, starts = numpy.arange(40).reshape(4, 10), numpy.array([0, 10, 20, 30])
    kept = leave_out(labels, starts, min_labels=3, seed=1)
    counts = (kept != IGNORED).sum(axis=1)
    assert counts.min() >= 3
    assert len(set(counts)) > 1
    for row, count, original in zip(kept, counts, labels, strict=True):
        assert (row[:count] == original[:count]).all()
        assert (row[count:] == IGNORED).all()
    # However the sequences are shared out.
    assert (leave_out(labels[2:3], starts[2:3], min_labels=3, seed=1) == kept[2:3]).all()
    assert (leave_out(labels, starts, min_labels=3, seed=2) != kept).any()


def test_loss_is_over_the_labels_that_count() -> None:
    logits = torch.randn(2, 3, 5, dtype=torch.float64)
    labels = torch.tensor([[1, 2, IGNORED], [4, IGNORED, IGNORED]])
    chosen = logits[[0, 0, 1], [0, 1, 0]].log_softmax(-1)[[0, 1, 2], [1, 2, 4]]
    torch.testing.assert_close(token_loss(logits, labels), -chosen.mean())
    torch.testing.assert_close(token_loss(logits, labels, reduction="sum"), -chosen.sum())
