"""Steps split by what was seen of them from outside."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradwire.measure.marks import Mark, StepParts, split_step

MARKS: dict[str, Mark] = {
    "L": "loader-begin",
    "l": "loader-end",
    "P": "pass",
    "E": "evaluation",
    "A": "aside-begin",
    "a": "aside-end",
    "O": "optimizer-begin",
    "o": "optimizer-end",
}


def split(letters: str) -> dict[str, float]:
    """Split a step whose mark number n, from 0, came 2**n seconds after the one before it."""
    parts = split_step([MARKS[letter] for letter in letters], [float(2**place) for place in range(len(letters))])
    return {name: value for name, value in asdict(parts).items() if value}


@pytest.mark.parametrize(
    ("letters", "parts"),
    [
        # other: until a batch is asked for; input: the batch, and its way to the model; passes: until the optimizer.
        ("LlPOo", {"other": 1, "input_wait": 2 + 4, "passes": 8, "optimizer": 16}),
        # two micro-steps
        ("LlPLlPOo", {"other": 1, "input_wait": 2 + 4 + 16 + 32, "passes": 8 + 64, "optimizer": 128}),
        # batches that no loader of torch's brought
        ("POo", {"input_wait": 1, "passes": 2, "optimizer": 4}),
        ("PPOo", {"input_wait": 1, "passes": 2 + 4, "optimizer": 8}),
        # the end of an epoch: a request without a batch, then a new loader's
        ("LlLlPOo", {"other": 1, "input_wait": 2 + 4 + 8 + 16, "passes": 32, "optimizer": 64}),
        # two optimizers, one after the other
        ("LlPOoOo", {"other": 1 + 32, "input_wait": 2 + 4, "passes": 8, "optimizer": 16 + 64}),
        # an optimizer that calls the model itself
        ("LlOPo", {"other": 1 + 8, "input_wait": 2 + 4, "passes": 16}),
        # a checkpoint after the last step
        ("AaLlPOo", {"other": 1 + 4, "excluded": 2, "input_wait": 8 + 16, "passes": 32, "optimizer": 64}),
        # a checkpoint within the passes
        ("LlPAaOo", {"other": 1 + 32, "input_wait": 2 + 4, "passes": 8, "excluded": 16, "optimizer": 64}),
        # evaluation after the last step, its first and its further batches, until a training batch is asked for
        (
            "LlELlELlPOo",
            {"excluded": 1 + 2 + 4 + 8 + 16 + 32 + 64, "input_wait": 128 + 256, "passes": 512, "optimizer": 1024},
        ),
        # the same without a loader
        ("EEPOo", {"excluded": 1 + 2 + 4, "passes": 8, "optimizer": 16}),
        # evaluation between two micro-steps
        (
            "LlPLlELlPOo",
            {
                "other": 1,
                "input_wait": 2 + 4 + 128 + 256,
                "passes": 8 + 512,
                "excluded": 16 + 32 + 64,
                "optimizer": 1024,
            },
        ),
        # a model that is only evaluated in this step
        ("EOo", {"excluded": 1, "other": 2, "optimizer": 4}),
        ("Oo", {"other": 1, "optimizer": 2}),
        ("", {}),
    ],
)
def test_a_step_by_its_marks(letters: str, parts: dict[str, float]) -> None:
    assert split(letters) == parts


@given(letters=st.lists(st.sampled_from(sorted(MARKS)), max_size=30))
def test_parts_sum_to_the_time_between_the_marks(letters: list[str]) -> None:
    parts = split_step([MARKS[letter] for letter in letters], [1.0] * len(letters))
    assert parts.seconds + parts.excluded == len(letters)


def test_what_is_excluded_is_not_of_the_step() -> None:
    assert StepParts(input_wait=1.0, passes=2.0, optimizer=3.0, other=4.0, excluded=99.0).seconds == 10.0
