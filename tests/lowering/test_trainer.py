"""The arguments of transformers' Trainer: what is written, what stands in the environment, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gradwire.artifact import Artifact
from gradwire.errors import CannotLower
from tests.lowering.drawing import METHOD, STRATEGY, lowered

DATA = "parallelism.data"
OVERLAP = "communication.overlap"


def arguments(artifact: Artifact) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(artifact.files["training_arguments.json"])
    return document


def outcomes(artifact: Artifact) -> dict[str, str]:
    return {field.path: f"{field.outcome} {field.carrier}" for field in artifact.report.fields}


def test_no_argument_is_left_to_be_filled_in() -> None:
    artifact = lowered("trainer", {STRATEGY: "zero2", "training.gradient_clip": None})
    assert "auto" not in artifact.files["training_arguments.json"] + artifact.files["deepspeed.json"]
    assert arguments(artifact)["max_grad_norm"] == 0.0
    assert arguments(artifact)["deepspeed"] == "out/deepspeed.json"


def test_the_deepspeed_file_has_the_optimizer_and_leaves_the_learning_rates_course_to_the_trainer() -> None:
    values = {STRATEGY: "zero3", "training.scheduler.type": "linear", "training.scheduler.warmup_steps": 5}
    artifact = lowered("trainer", {**values, "training.optimizer": "Adam"})
    deepspeed = json.loads(artifact.files["deepspeed.json"])
    assert "scheduler" not in deepspeed
    assert deepspeed["optimizer"]["params"]["lr"] == arguments(artifact)["learning_rate"]
    assert deepspeed["optimizer"]["params"]["adam_w_mode"] is False
    assert (arguments(artifact)["lr_scheduler_type"], arguments(artifact)["warmup_steps"]) == ("linear", 5)


@pytest.mark.parametrize(
    ("kind", "warmup", "ratio", "name", "options"),
    [
        ("constant", 0, 0.0, "constant", None),
        ("constant", 3, 0.0, "constant_with_warmup", None),
        ("linear", 3, 0.0, "linear", None),
        ("linear", 3, 0.1, "polynomial", {"lr_end": 0.1 * 0.0003, "power": 1.0}),
        ("cosine", 0, 0.0, "cosine", None),
        ("cosine", 3, 0.1, "cosine_with_min_lr", {"min_lr_rate": 0.1}),
    ],
)
def test_each_course_of_the_learning_rate_has_its_scheduler(
    kind: str, warmup: int, ratio: float, name: str, options: dict[str, float] | None
) -> None:
    prefix = "training.scheduler."
    values = {f"{prefix}type": kind, f"{prefix}warmup_steps": warmup, f"{prefix}min_ratio": ratio}
    document = arguments(lowered("trainer", values))
    assert (document["lr_scheduler_type"], document.get("lr_scheduler_kwargs")) == (name, options)


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"training.optimizer": "Adam"}, "training.optimizer"),
        (
            {"training.scheduler.type": "cosine", "training.scheduler.total_steps": 50},
            "training.scheduler.total_steps",
        ),
        ({f"{OVERLAP}.bucket_cap_mb": "auto"}, f"{OVERLAP}.bucket_cap_mb"),
        ({f"{OVERLAP}.static_graph": True, "training.gradient_accumulation": 2}, f"{OVERLAP}.static_graph"),
    ],
)
def test_what_the_trainer_cannot_do_is_refused_with_the_nearest(values: dict[str, Any], path: str) -> None:
    with pytest.raises(CannotLower) as caught:
        lowered("trainer", values)
    [line] = str(caught.value).splitlines()[1:-1]
    assert line.strip().startswith(f"{path}: ")
    assert lowered("trainer", values, allow_lossy=True).files


def test_what_no_argument_says_is_carried_by_one_call_of_the_script() -> None:
    values = {METHOD: "int8", f"{OVERLAP}.gradient_as_bucket_view": True, "training.weight_decay": 0.1}
    found = outcomes(lowered("trainer", values, program=("train.py",)))
    helper = "gradwire.integrations.trainer.follow_recipe"
    for path in (METHOD, f"{OVERLAP}.gradient_as_bucket_view"):
        assert found[path] == f"emulated {helper}"
    assert found["training.weight_decay"] == f"emulated training_arguments.json weight_decay, and {helper}"
    assert found["training.compile"] == "exact training_arguments.json torch_compile"


def test_what_accelerate_reads_from_the_environment_only_is_part_of_the_command() -> None:
    hybrid = {STRATEGY: "fsdp", "training.num_gpus": 8, f"{DATA}.shard_group_size": 4}
    environment = lowered("trainer", hybrid).environment
    assert environment["PARALLELISM_CONFIG_DP_REPLICATE_SIZE"] == "2"
    assert environment["PARALLELISM_CONFIG_DP_SHARD_SIZE"] == "4"
    # FSDP 1 takes FULL_SHARD without it, whatever reshard_after_forward says.
    kept = {STRATEGY: "fsdp", f"{DATA}.fsdp.version": 1, f"{DATA}.fsdp.reshard_after_forward": False}
    assert lowered("trainer", kept).environment["FSDP_SHARDING_STRATEGY"] == "SHARD_GRAD_OP"


def test_fsdp_is_said_in_the_trainers_own_words() -> None:
    section = arguments(lowered("trainer", {STRATEGY: "fsdp", f"{DATA}.fsdp.state_dict": "full"}))["fsdp_config"]
    assert section["state_dict_type"] == "FULL_STATE_DICT"
    assert section["transformer_layer_cls_to_wrap"] == ["GPT2Block"]
    assert not any(key.startswith("fsdp_") for key in section)


def test_a_run_that_ends_before_its_learning_rate_has_fallen_says_who_ends_it() -> None:
    values = {"training.scheduler.type": "cosine", "training.scheduler.total_steps": 1000}
    assert arguments(lowered("trainer", values))["max_steps"] == 1000
    helper = "gradwire.integrations.trainer.follow_recipe"
    assert outcomes(lowered("trainer", values, program=("train.py",)))["training.max_steps"] == f"emulated {helper}"
