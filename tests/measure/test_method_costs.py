"""What each method sends by the cost model is what the method itself counts."""

from __future__ import annotations

import pytest

from gradwire.documents.recipe_schema import Compression
from gradwire.measure.communication_cost import GradientTensor, Step
from gradwire.measure.method_costs import candidate_caps, method_cost

_MATRIX = GradientTensor(rows=64, columns=32, ready_seconds=1.0)
_VECTOR = GradientTensor(rows=64, columns=1, ready_seconds=1.0)
_BUCKET = (_MATRIX, _VECTOR)
_FACTORS = (64 + 32) * 4


@pytest.mark.parametrize(
    ("compression", "payload_bytes"),
    [
        (Compression(), (2048 + 64) * 4),
        (Compression(method="bf16"), (2048 + 64) * 2),
        (Compression(method="fp16-torch"), (2048 + 64) * 2),
        (Compression(method="powersgd"), (_FACTORS + 64) * 4),
        (Compression(method="powersgd", wire_dtype="bf16"), (_FACTORS + 64) * 2),
        (Compression(method="powersgd-torch"), (_FACTORS + 64) * 4),
        (Compression(method="powersgd-alternating"), (_FACTORS / 2 + 64) * 4),
        (Compression(method="int8"), (2048 + 64) * (1 + 4 / 512)),
        # Each of 2 ranks sends a hundredth of the elements, 8 bytes each, to the other: half an all-reduce's way.
        (Compression(method="topk"), (2048 + 64) * 0.01 * 8),
    ],
)
def test_payload_of_a_bucket(compression: Compression, payload_bytes: float) -> None:
    assert method_cost(compression).payload_bytes(_BUCKET, 2) == pytest.approx(payload_bytes)


def test_16_bit_gradients_are_half_as_large() -> None:
    assert method_cost(Compression(), bytes_per_element=2).payload_bytes(_BUCKET, 2) == (2048 + 64) * 2


def test_candidate_buckets_go_up_to_all_gradients() -> None:
    step = Step(compute_seconds=1.0, gradients=(_MATRIX,) * 1024)
    caps = candidate_caps(step)
    assert caps == sorted(caps)
    assert caps[-1] == pytest.approx(step.gradient_bytes, rel=0.01)
    assert candidate_caps(Step(compute_seconds=1.0, gradients=(_VECTOR,))) == [pytest.approx(256, rel=0.01)]
