"""Cases from public bug reports that are about carrying a configuration over, each with its right answer."""

from __future__ import annotations

import json

import pytest

from gradwire.recipe.learning_rate import planned_learning_rate
from gradwire.targets.job import LaunchFacts
from tests.importing.importing import SOUND, import_, job
from tests.lowering.drawing import STRATEGY, lowered, recipe

LINEAR = {"training.scheduler.type": "linear", "training.max_steps": 1000, "training.num_gpus": 4}


@pytest.mark.parametrize("size", [1, 4])
def test_a_decay_over_1000_steps_ends_after_1000_whatever_the_processes(size: int) -> None:
    """huggingface/accelerate#2318, #1382: a prepared scheduler moves once per process, and 1000 steps end at 250.

    A recipe counts optimizer steps, its DeepSpeed scheduler too, and under Accelerate it is never prepared.
    """
    training = recipe({**LINEAR, "training.num_gpus": size}).training
    assert planned_learning_rate(training, 250) == pytest.approx(training.learning_rate * 0.75)
    assert planned_learning_rate(training, 999) > 0 == planned_learning_rate(training, 1000)
    file = json.loads(lowered("deepspeed", {**LINEAR, "training.num_gpus": size}).files["deepspeed.json"])
    params = file["scheduler"]["params"]
    assert params["total_num_steps"] - params["last_batch_iteration"] == 1000
    said = {field.path: field for field in lowered("accelerate", LINEAR).report.fields}
    assert "advances once per process" in str(said["training.scheduler.type"].note)


@pytest.mark.parametrize("size", [1, 8])
def test_warm_up_is_counted_in_optimizer_steps_on_the_way_in_and_out(size: int) -> None:
    """huggingface/accelerate#662, huggingface/diffusers#9633: 500 steps of warm-up are not 500 x 8."""
    trainer = {"warmup_steps": 500, "max_steps": 2000, "lr_scheduler_type": "cosine", "bf16": True}
    facts = LaunchFacts(num_processes=size)
    imported, _, _ = import_(
        job({**SOUND, "optimizer": None} | {"optimizer": SOUND["optimizer"]}, trainer=trainer, facts=facts)
    )
    scheduler = imported.training.scheduler
    assert (scheduler.type, scheduler.warmup_steps, imported.training.num_gpus) == ("cosine", 500, size)
    values = {"training.scheduler.warmup_steps": 500, "training.num_gpus": size, STRATEGY: "zero1"}
    file = json.loads(lowered("deepspeed", values).files["deepspeed.json"])
    assert file["scheduler"]["params"]["warmup_num_steps"] == 500


def test_options_of_another_hook_are_said_to_be_unused() -> None:
    """huggingface/accelerate pull request 2841: options reached PowerSGD's hook only, and nothing said so."""
    values = {
        "communication.compression.method": "fp16-torch",
        "communication.compression.matrix_approximation_rank": 8,
        "communication.compression.start_step": 500,
    }
    said = {field.path: field for field in lowered("accelerate", values).report.fields}
    for name in ("matrix_approximation_rank", "start_step"):
        field = said[f"communication.compression.{name}"]
        assert field.outcome == "unused" and "powersgd" in str(field.note)
    assert said["communication.compression.method"].outcome != "unused"
