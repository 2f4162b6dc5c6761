"""A rank knows its place, and a world of another size than the plan's is refused with both numbers."""

from __future__ import annotations

import pytest

from gradwire.documents.plan_schema import Plan
from gradwire.documents.recipe_schema import Model, Recipe, Training
from gradwire.errors import EnvironmentNotFit, UsageError
from gradwire.plan import settle
from gradwire.train.setting import Place, check_device_can, check_world_size, read_place


def plan(num_gpus: int = 2, precision: str = "fp32") -> Plan:
    model = Model(family="gpt2", hidden_size=8, layers=1, attention_heads=1, sequence_length=8)
    training = Training(num_gpus=num_gpus, precision=precision)  # type: ignore[arg-type]
    return settle(Recipe(model=model, training=training), recipe_name="test", backend="native", device="cpu")


def test_place_is_what_the_launcher_says() -> None:
    place = read_place({"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"})
    assert place == Place(rank=5, local_rank=1, world_size=8, launched=True)


def test_process_without_a_launcher_is_alone() -> None:
    assert read_place({}) == Place(rank=0, local_rank=0, world_size=1, launched=False)


def test_rank_that_is_no_number_is_refused() -> None:
    with pytest.raises(UsageError, match="RANK is 'first'"):
        read_place({"RANK": "first", "WORLD_SIZE": "2"})


@pytest.mark.parametrize(
    ("environment", "cause"),
    [
        ({}, "No launcher started this process"),
        ({"ACCELERATE_MIXED_PRECISION": "no"}, "Accelerate starts a single process, without a word"),
        ({"RANK": "0", "WORLD_SIZE": "3"}, "The launcher was told another number"),
    ],
)
def test_another_world_size_names_both_numbers_and_the_cause(environment: dict[str, str], cause: str) -> None:
    place = read_place(environment)
    with pytest.raises(EnvironmentNotFit, match=rf"for 2 processes, but {place.world_size} .*{cause}"):
        check_world_size(plan(), place, environment)


def test_planned_world_size_passes() -> None:
    check_world_size(plan(), read_place({"RANK": "0", "WORLD_SIZE": "2"}), {})


def test_fp16_on_cpu_is_refused() -> None:
    with pytest.raises(EnvironmentNotFit, match=r"fp16-mixed needs a CUDA device.*bf16-mixed"):
        check_device_can(plan(precision="fp16-mixed"))
