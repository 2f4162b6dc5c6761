"""DeepSpeed's own scheduler, given nothing but the lowered file, takes every step with the recipe's learning rate."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gradwire.recipe.learning_rate import planned_learning_rate
from tests.lint.linting import codes, lint
from tests.lowering.drawing import lowered, recipe
from tests.lowering.loader import Loader, running_loader

SCHEDULER = "training.scheduler"
STEPS = "training.max_steps"

SAID: list[dict[str, Any]] = [
    {"type": kind, "warmup_steps": warmup, **({} if kind == "constant" else {"min_ratio": ratio})}
    for kind, warmup, ratio in (
        ("constant", 1, 0),
        ("constant", 2, 0),
        ("constant", 9, 0),
        ("linear", 0, 0),
        ("linear", 1, 0),
        ("linear", 2, 0),
        ("linear", 9, 0),
        ("linear", 0, 0.25),
        ("cosine", 0, 0),
        ("cosine", 0, 0.1),
    )
]
LATE: list[dict[str, Any]] = [
    {"type": "cosine", "warmup_steps": 1},
    {"type": "cosine", "warmup_steps": 2},
    {"type": "cosine", "warmup_steps": 9, "min_ratio": 0.1},
    {"type": "linear", "warmup_steps": 9, "min_ratio": 0.1},
]


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loader]:
    with running_loader(tmp_path_factory.mktemp("schedulers")) as running:
        yield running


def fields_of(scheduler: dict[str, Any], **options: Any) -> dict[str, Any]:
    artifact = lowered("deepspeed", {SCHEDULER: scheduler, STEPS: 30}, **options)
    return {field.path.removeprefix(f"{SCHEDULER}."): field for field in artifact.report.fields}


@pytest.mark.parametrize("scheduler", SAID, ids=str)
def test_file_alone_gives_every_learning_rate(scheduler: dict[str, Any], loader: Loader) -> None:
    artifact = lowered("deepspeed", {SCHEDULER: scheduler, STEPS: 30})
    reread = loader.read(artifact)
    assert reread.status == "equal", [value for value in reread.values if not value.equal]
    [rates] = [value for value in reread.values if value.name.startswith("learning rates of steps 0, 1, 2,")]
    training = recipe({SCHEDULER: scheduler, STEPS: 30}).training
    steps = [int(step) for step in rates.name.removeprefix("learning rates of steps ").split(", ")]
    assert {0, 1, 2, 30} <= set(steps)
    assert rates.loaded == pytest.approx([planned_learning_rate(training, step) for step in steps], rel=1e-9)
    assert fields_of(scheduler)["type"].carrier == "deepspeed.json scheduler"


@pytest.mark.parametrize("scheduler", LATE, ids=str)
def test_what_a_file_cannot_say_the_trainer_does_and_a_script_is_told(
    scheduler: dict[str, Any], loader: Loader
) -> None:
    assert loader.read(lowered("deepspeed", {SCHEDULER: scheduler, STEPS: 30})).status == "equal"
    by_trainer = fields_of(scheduler)["type"]
    assert by_trainer.outcome == "exact"
    assert "gradwire.train" in by_trainer.carrier
    by_script = fields_of(scheduler, program=("train.py",))["type"]
    assert by_script.outcome == "emulated"
    assert "WarmupCosineLR warms up one step late" in by_script.note or "WarmupDecayLR warms up from" in by_script.note


def test_warm_up_is_linear_and_the_peak_is_the_recipes() -> None:
    values = {SCHEDULER: {"type": "linear", "warmup_steps": 5}, STEPS: 30, "training.learning_rate": 0.5}
    artifact = lowered("deepspeed", values)
    document = json.loads(artifact.files["deepspeed.json"])
    assert document["scheduler"]["params"]["warmup_type"] == "linear"
    assert document["scheduler"]["params"]["warmup_max_lr"] == 0.5
    assert {"scheduler.params.warmup_type", "scheduler.params.warmup_max_lr"} <= {
        d.key for d in artifact.report.defaults
    }


def test_a_constant_rate_has_no_scheduler_and_accelerates_file_never_has_one() -> None:
    assert "scheduler" not in json.loads(lowered("deepspeed").files["deepspeed.json"])
    values = {SCHEDULER: {"type": "cosine"}, "parallelism.data.strategy": "zero2"}
    assert "scheduler" not in json.loads(lowered("accelerate", values).files["deepspeed.json"])


def test_a_shortened_run_keeps_the_whole_runs_course() -> None:
    values = {SCHEDULER: {"type": "cosine", "total_steps": 1000}, STEPS: 10}
    params = json.loads(lowered("deepspeed", values).files["deepspeed.json"])["scheduler"]["params"]
    assert params["total_num_steps"] == 1000 + params["warmup_num_steps"]


@pytest.mark.parametrize("scheduler", [*SAID, *LATE], ids=str)
def test_the_linter_finds_nothing_wrong_with_it(scheduler: dict[str, Any]) -> None:
    artifact = lowered("deepspeed", {SCHEDULER: scheduler, STEPS: 30, "parallelism.data.strategy": "zero2"})
    assert codes(lint(artifact.files["deepspeed.json"]), "error", "warning") == []
