"""Layers are split over stages so that the costliest stage costs least."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradwire.documents.recipe_schema import Model
from gradwire.recipe.model_shapes import layers_per_stage


def model_of(layers: int, *, vocab_size: int = 256, family: str = "gpt2") -> Model:
    return Model(
        family=family,
        hidden_size=64,
        layers=layers,
        attention_heads=4,
        sequence_length=32,
        vocab_size=vocab_size,
    )


def costliest(split: tuple[int, ...] | list[int], model: Model) -> int:
    """FLOPs per token of the forward pass, every product written out for a GPT-2 block of width w: 24 w^2 + 4 w s."""
    width = model.hidden_size
    block = 24 * width * width + 4 * width * model.sequence_length
    projection = 2 * width * model.vocab_size
    return max(count * block + (projection if index == len(split) - 1 else 0) for index, count in enumerate(split))


@given(st.integers(2, 5), st.integers(0, 7), st.sampled_from([256, 1000, 5000, 20000]))
@settings(deadline=None)
def test_no_split_has_a_cheaper_costliest_stage(stages: int, more: int, vocab_size: int) -> None:
    model = model_of(stages + more, vocab_size=vocab_size)
    split = layers_per_stage(model, stages)
    assert len(split) == stages
    assert sum(split) == model.layers
    assert min(split) >= 1
    cuts = combinations(range(1, model.layers), stages - 1)
    every = [tuple(b - a for a, b in zip((0, *cut), (*cut, model.layers), strict=True)) for cut in cuts]
    assert costliest(split, model) == min(costliest(each, model) for each in every)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_large_vocabulary_takes_layers_off_the_last_stage(family: str) -> None:
    assert layers_per_stage(model_of(16, family=family), 4) == [4, 4, 4, 4]
    assert layers_per_stage(model_of(16, vocab_size=5000, family=family), 4)[-1] < 4
