"""What Accelerate's YAML says of a recipe, and how `accelerate launch` is started."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from gradwire.errors import CannotLower
from gradwire.plan import Backend, Device
from tests.lowering.drawing import METHOD, STRATEGY, lowered


def config(values: dict[str, Any] | None = None, *, device: Device = "cuda", **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(
        lowered("accelerate", values, device=device, **options).files["accelerate.yaml"]
    )
    return found


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_ddp_starts_every_process_on_either_device(device: Device) -> None:
    found = config(device=device)
    assert (found["distributed_type"], found["num_processes"]) == ("MULTI_GPU", 2)
    assert found["use_cpu"] is (device == "cpu")


def test_one_process_is_not_distributed_and_stays_a_string() -> None:
    found = config({"training.num_gpus": 1})
    assert found["distributed_type"] == "NO"
    assert found["mixed_precision"] == "no"


@pytest.mark.parametrize(
    ("precision", "mode"), [("fp32", "no"), ("bf16-mixed", "bf16"), ("fp16-mixed", "fp16"), ("bf16-true", "no")]
)
def test_precision_is_the_quoted_mode(precision: str, mode: str) -> None:
    assert config({"training.precision": precision})["mixed_precision"] == mode


def test_pure_bf16_is_reported_as_a_cast_of_the_model() -> None:
    fields = {f.path: f for f in lowered("accelerate", {"training.precision": "bf16-true"}).report.fields}
    assert fields["training.precision"].outcome == "emulated"


def test_cpu_ranks_meet_over_gloo_by_an_environment_variable() -> None:
    assert lowered("accelerate", device="cpu").environment["ACCELERATE_USE_CPU"] == "true"


def test_zero_on_a_cpu_is_not_turned_into_ddp_by_that_variable() -> None:
    environment = lowered("accelerate", {STRATEGY: "zero2"}, device="cpu").environment
    assert "ACCELERATE_USE_CPU" not in environment
    assert environment["DS_ACCELERATOR"] == "cpu"


def test_zero_puts_everything_into_the_deepspeed_file_and_nothing_beside_it() -> None:
    artifact = lowered("accelerate", {STRATEGY: "zero3", "training.gradient_clip": 1.0}, out="runs/zero")
    found = yaml.safe_load(artifact.files["accelerate.yaml"])
    assert found["distributed_type"] == "DEEPSPEED"
    assert found["deepspeed_config"] == {
        "deepspeed_config_file": "runs/zero/deepspeed.json",
        "deepspeed_multinode_launcher": "standard",
        "zero3_init_flag": True,
    }
    assert "mixed_precision" not in found
    deepspeed = json.loads(artifact.files["deepspeed.json"])
    assert deepspeed["gradient_clipping"] == 1.0
    # A script that prepares its own optimizer is refused beside one in the file.
    assert "optimizer" not in deepspeed


def test_the_command_finds_the_deepspeed_file_from_any_folder() -> None:
    command = lowered("accelerate", {STRATEGY: "zero1"}).report.command
    assert command[2:6] == ["--config_file", "accelerate.yaml", "--deepspeed_config_file", "deepspeed.json"]


def test_fsdp_is_version_two_and_wraps_the_models_blocks() -> None:
    found = config({STRATEGY: "fsdp"})
    assert found["distributed_type"] == "FSDP"
    assert found["fsdp_config"]["fsdp_version"] == 2
    assert found["fsdp_config"]["fsdp_transformer_layer_cls_to_wrap"] == "GPT2Block"


def test_two_runs_on_one_machine_take_different_ports() -> None:
    assert config()["main_process_port"] == 0


def test_several_machines_count_processes_in_total() -> None:
    found = config({"training.num_gpus": 16}, num_nodes=2, node_rank=1)
    assert (found["num_processes"], found["num_machines"], found["machine_rank"]) == (16, 2, 1)
    assert (found["main_process_ip"], found["main_process_port"]) == ("10.0.0.1", 29400)


def test_a_pipeline_is_refused_with_all_its_fields() -> None:
    values = {"parallelism.pipeline": {"chunks": 2, "stages": 2}, "training.batch_size_per_gpu": 2}
    with pytest.raises(CannotLower, match=r"parallelism\.pipeline\.stages.*\n.*parallelism\.pipeline\.chunks"):
        lowered("accelerate", values)


def test_powersgd_reaches_ddp_through_the_program() -> None:
    fields = {f.path: f for f in lowered("accelerate", {METHOD: "powersgd"}).report.fields}
    assert fields[METHOD].carrier == "gradwire.train"
    fields = {f.path: f for f in lowered("accelerate", {METHOD: "powersgd"}, program=("t.py",)).report.fields}
    assert fields[METHOD].carrier == "gradwire.accelerate.from_recipe"


@pytest.mark.parametrize(("engine", "backend"), [("transformer-engine", "te"), ("torchao", "ao")])
def test_eight_bit_floats_have_a_section_of_their_own(engine: str, backend: str) -> None:
    values = {"training.precision": "bf16-mixed", "training.fp8": engine}
    document = yaml.safe_load(lowered("accelerate", values).files["accelerate.yaml"])
    assert document["mixed_precision"] == "fp8"
    assert document["fp8_config"]["fp8_backend"] == backend
    for other in ({"training.fp8": "none"}, {STRATEGY: "zero3"}):
        changed = lowered("accelerate", {**values, **other}, allow_lossy=True)
        assert "fp8_config" not in yaml.safe_load(changed.files["accelerate.yaml"])


@pytest.mark.parametrize("backend", ["native", "deepspeed", "trainer"])
def test_eight_bit_floats_are_accelerates_alone(backend: Backend) -> None:
    with pytest.raises(CannotLower, match=r"training\.fp8: .*--backend accelerate"):
        lowered(backend, {"training.precision": "bf16-mixed", "training.fp8": "torchao"})
