"""What is counted of the arguments of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from gradwire.integrations.counts import count_of
from gradwire.integrations.pass_counter import PassCounter

TOKENS = torch.ones(3, 8, dtype=torch.long)
MASK = torch.tensor([[1] * length + [0] * (8 - length) for length in (2, 3, 8)])


@pytest.mark.parametrize(
    ("arguments", "named", "samples", "tokens", "slots"),
    [
        ((), {"input_ids": TOKENS, "attention_mask": MASK, "labels": TOKENS}, 3, 13, 24),
        ((), {"input_ids": TOKENS}, 3, 24, 24),
        ((), {"inputs_embeds": torch.ones(3, 8, 4), "attention_mask": MASK}, 3, 13, 24),
        ((), {"input_ids": TOKENS, "attention_mask": torch.ones(3, 1, 8, 8)}, 3, 24, 24),
        (({"input_ids": TOKENS, "attention_mask": MASK},), {}, 3, 13, 24),
        ((TOKENS,), {}, 3, 24, 24),
        ((TOKENS, TOKENS), {}, 3, 24, 24),
        (((TOKENS, TOKENS),), {}, 3, 24, 24),
        (([TOKENS, TOKENS], 0), {}, 3, 24, 24),
        (({"text": TOKENS},), {}, 3, 24, 24),
        ((torch.ones(3, 2, 8, 8),), {}, 3, None, None),
        ((torch.ones(3, 8),), {}, 3, None, None),
        ((torch.ones(3, dtype=torch.long),), {}, 3, None, None),
        ((), {"pixel_values": torch.ones(3, 2, 8, 8)}, 3, None, None),
        (({"pixel_values": torch.ones(3, 2, 8, 8)},), {}, 3, None, None),
        ((torch.tensor(1.0),), {}, None, None, None),
        (([],), {}, None, None, None),
        (({},), {}, None, None, None),
        ((), {}, None, None, None),
        (("text", 3), {"flag": True}, None, None, None),
    ],
)
def test_sequences_tokens_and_slots(
    arguments: tuple[Any, ...], named: Mapping[str, Any], samples: int | None, tokens: int | None, slots: int | None
) -> None:
    counted = count_of(arguments, named)
    found = counted.tokens.item() if isinstance(counted.tokens, torch.Tensor) else counted.tokens
    assert (counted.samples, found, counted.slots) == (samples, tokens, slots)


def test_micro_steps_add_up_and_evaluation_counts_nothing() -> None:
    model = torch.nn.Embedding(8, 2)
    counter = PassCounter(model)
    model(TOKENS)
    model(TOKENS[:1])
    model.eval()
    model(TOKENS)
    model.train()
    counted = counter.take()
    assert (counted.samples, counted.tokens, counted.slots) == (4, 32, 32)
    assert counter.take().tokens is None
    counter.close()
    model(TOKENS)
    assert counter.is_closed
    assert counter.take().samples is None
