"""A recipe's own keys for one backend: merged last, reported, and refused where they are wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from gradwire.errors import CannotLower
from gradwire.plan import Backend
from tests.lowering.drawing import STRATEGY, lowered

DEEPSPEED = "backends.deepspeed"
ACCELERATE = "backends.accelerate"


def test_keys_are_merged_last_and_reported() -> None:
    extras = {"wall_clock_breakdown": True, "zero_optimization": {"offload_optimizer": {"buffer_count": 5}}}
    artifact = lowered("deepspeed", {DEEPSPEED: extras, STRATEGY: "zero2"})
    written = json.loads(artifact.files["deepspeed.json"])
    assert written["wall_clock_breakdown"] is True
    assert written["zero_optimization"]["offload_optimizer"] == {"buffer_count": 5}
    assert written["zero_optimization"]["stage"] == 2
    assert artifact.report.extras == [
        "deepspeed.json wall_clock_breakdown",
        "deepspeed.json zero_optimization.offload_optimizer.buffer_count",
    ]


def test_deepspeed_keys_reach_the_file_below_accelerate_too() -> None:
    artifact = lowered("accelerate", {DEEPSPEED: {"dump_state": True}, STRATEGY: "zero2"})
    assert json.loads(artifact.files["deepspeed.json"])["dump_state"] is True


def test_accelerate_keys_are_merged_into_the_yaml() -> None:
    artifact = lowered("accelerate", {ACCELERATE: {"gpu_ids": "0,1", "debug": True}})
    written = yaml.safe_load(artifact.files["accelerate.yaml"])
    assert (written["gpu_ids"], written["debug"]) == ("0,1", True)


def test_keys_for_another_backend_do_not_matter() -> None:
    artifact = lowered("native", {DEEPSPEED: {"no such": "key"}, ACCELERATE: {"neither": 1}})
    assert artifact.report.extras == []


def test_a_key_that_repeats_the_recipe_is_taken() -> None:
    assert lowered("deepspeed", {DEEPSPEED: {"gradient_clipping": 0}}).report.extras


@pytest.mark.parametrize(
    ("backend", "values", "message"),
    [
        ("deepspeed", {DEEPSPEED: {"gradient_clipp1ng": 1}}, r"did you mean gradient_clipping\?"),
        ("deepspeed", {DEEPSPEED: {"amp": {"enabled": False}}}, "amp: no key of deepspeed.json"),
        (
            "deepspeed",
            {DEEPSPEED: {"gradient_clipping": 2.0}, "training.gradient_clip": 1.0},
            r"is 2\.0, but training\.gradient_clip makes it 1\.0; nearest: gradient_clipping left out, so",
        ),
        ("deepspeed", {DEEPSPEED: {"zero_optimization": {"stage": 1}}}, r"stage is 1, but parallelism\.data\.strategy"),
        (
            "deepspeed",
            {DEEPSPEED: {"zero_optimization": True}},
            r"is true, but zero_optimization\.stage",
        ),
        ("deepspeed", {DEEPSPEED: {"optimizer": {"params": {"lr": 1.0}}}}, r"but training\.learning_rate makes it"),
        ("deepspeed", {DEEPSPEED: {"steps_per_print": "auto"}}, "only other libraries fill in"),
        ("deepspeed", {DEEPSPEED: {"steps_per_print": float("inf")}}, "which JSON cannot say"),
        ("deepspeed", {DEEPSPEED: {"zero_optimization": {"stage": True}}, STRATEGY: "zero1"}, "stage is true, but"),
        ("deepspeed", {DEEPSPEED: {"zero_optimization.stage": 3}}, r"zero_optimization\.stage: no key of deepspeed"),
        (
            "deepspeed",
            {DEEPSPEED: {"scheduler": {"type": "WarmupLR"}}, "training.scheduler.warmup_steps": 5},
            "training.scheduler decides",
        ),
        ("accelerate", {DEEPSPEED: {"scheduler": {"type": "WarmupLR"}}, STRATEGY: "zero1"}, "scheduler decides"),
        ("accelerate", {DEEPSPEED: {"optimizer": {"type": "Adam"}}, STRATEGY: "zero1"}, "the program builds"),
        ("accelerate", {ACCELERATE: {"num_proceses": 4}}, r"did you mean num_processes\?"),
        ("accelerate", {ACCELERATE: {"num_processes": 4}}, r"num_processes is 4, but training\.num_gpus makes it 2"),
        ("accelerate", {ACCELERATE: {"dynamo_config": {"dynamo_backend": "INDUCTOR"}}}, r"training\.compile decides"),
        ("accelerate", {ACCELERATE: {"deepspeed_config": {"zero_stage": 2}}}, "which does not read it"),
        (
            "accelerate",
            {ACCELERATE: {"fsdp_config": {"fsdp_ofload_params": True}}, STRATEGY: "fsdp"},
            r"did you mean fsdp_offload_params\?",
        ),
        (
            "accelerate",
            {ACCELERATE: {"deepspeed_config": {"gradient_clipping": 1.0}}, STRATEGY: "zero2"},
            "gradient_clipping: no key of deepspeed_config",
        ),
    ],
)
def test_wrong_keys_are_refused_with_both_values_or_a_suggestion(
    backend: Backend, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(CannotLower, match=message):
        lowered(backend, values)


def test_a_lossy_lowering_leaves_only_the_wrong_keys_out() -> None:
    extras = {
        "gradient_clipp1ng": 1,
        "a.b": 2,
        "dump_state": True,
        "zero_optimization": {"stage": 3, "sub_group_size": 100},
    }
    artifact = lowered("deepspeed", {DEEPSPEED: extras, STRATEGY: "zero2"}, allow_lossy=True)
    written = json.loads(artifact.files["deepspeed.json"])
    assert "gradient_clipp1ng" not in written
    assert written["dump_state"] is True
    assert written["zero_optimization"]["stage"] == 2
    assert written["zero_optimization"]["sub_group_size"] == 100
    [field] = [field for field in artifact.report.fields if field.path == DEEPSPEED]
    assert "gradient_clipp1ng" in str(field.note)
    assert "stage is 3" in str(field.note)


def test_a_scheduler_of_deepspeeds_own_is_merged_and_said_where_the_recipe_has_none() -> None:
    own = {"type": "OneCycle", "params": {"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-3}}
    artifact = lowered("deepspeed", {DEEPSPEED: {"scheduler": own}})
    assert json.loads(artifact.files["deepspeed.json"])["scheduler"] == own
    said = {field.path: field for field in artifact.report.fields}
    for path in ("training.learning_rate", "training.scheduler.type"):
        assert said[path].outcome == "emulated" and "backends.deepspeed moves it" in str(said[path].note), path
