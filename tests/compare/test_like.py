"""Which runs may be compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import fields, replace

from gradwire.compare.like import unlike, unlike_batch
from gradwire.documents.measurement_schema import Workload

Make = Callable[..., Any]


@pytest.fixture(scope="module")
def workload(ran: Make) -> Workload:
    measured: Workload = ran()[1].workload
    return measured


def test_a_workload_is_like_itself(workload: Workload) -> None:
    assert unlike(workload, workload) == []


def test_every_field_that_differs_is_named_with_both_values(workload: Workload) -> None:
    other = replace(workload, precision="bf16-mixed", gradient_accumulation=4, compile=True, pipeline="1f1b, 8 chunks")
    assert unlike(workload, other) == [
        "precision: fp32 against bf16-mixed",
        "gradient_accumulation: 1 against 4",
        "pipeline: none against 1f1b, 8 chunks",
        "compile: off against on",
    ]


@pytest.mark.parametrize("name", [field.name for field in fields(Workload)])
def test_no_field_is_forgotten(workload: Workload, name: str) -> None:
    different: dict[str, Any] = {name: "something else"}
    changed = replace(workload, **different)
    assert len(unlike(changed, workload)) == 1
    free = name in ("batch_size_per_gpu", "gradient_accumulation")
    assert len(unlike(changed, workload, scaling="strong")) == (0 if free else 1)


def test_weak_scaling_compares_the_counted_batch_per_rank(ran: Make) -> None:
    one, two = ran(num_gpus=1)[1], ran(num_gpus=2)[1]
    assert unlike_batch(two, one, scaling="weak") == []
    assert unlike_batch(two, one, scaling="strong") == ["sequences per step over all ranks: 8 against 4"]


def test_strong_scaling_compares_the_counted_global_batch(ran: Make) -> None:
    one, two = ran(num_gpus=1, batch_size_per_gpu=8)[1], ran(num_gpus=2, batch_size_per_gpu=4)[1]
    assert unlike_batch(two, one, scaling="strong") == []
    assert unlike_batch(two, one, scaling="weak") == ["sequences per rank and step: 4 against 8"]
