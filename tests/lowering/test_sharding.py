"""Groups of ranks, offloading, ZeRO++ and the settings of fsdp: what stands in each file, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gradwire.artifact import Artifact
from gradwire.documents.recipe_schema import Recipe
from gradwire.errors import CannotLower, EnvironmentNotFit
from gradwire.launch.preflight import preflight
from gradwire.launch.probe import probe_machine
from gradwire.recipe.rules import broken_rules
from gradwire.train.setting import check_device_can
from tests.lowering.drawing import STRATEGY, lowered, plan

DATA = "parallelism.data"
OFFLOADED = {f"{DATA}.offload.optimizer": "cpu", f"{DATA}.offload.parameters": "cpu"}
HYBRID = {STRATEGY: "fsdp", "training.num_gpus": 8, f"{DATA}.shard_group_size": 4}


def zero_section(artifact: Artifact) -> dict[str, Any]:
    section: dict[str, Any] = json.loads(artifact.files["deepspeed.json"])["zero_optimization"]
    return section


def accelerate_file(artifact: Artifact) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(artifact.files["accelerate.yaml"])
    return document


def refused(error: CannotLower) -> list[str]:
    return [line.split(": ")[0].strip() for line in str(error).splitlines()[1:-1]]


def test_offloading_is_a_section_each_with_its_own_device() -> None:
    values = {
        STRATEGY: "zero3",
        f"{DATA}.offload.optimizer": "nvme",
        f"{DATA}.offload.parameters": "cpu",
        f"{DATA}.offload.nvme_path": "/local_nvme",
        f"{DATA}.offload.pin_memory": False,
    }
    section = zero_section(lowered("deepspeed", values))
    assert section["offload_optimizer"] == {"device": "nvme", "nvme_path": "/local_nvme", "pin_memory": False}
    assert section["offload_param"] == {"device": "cpu", "pin_memory": False}


def test_memory_is_pinned_where_there_is_a_gpu_unless_told_otherwise() -> None:
    values = {STRATEGY: "zero2", f"{DATA}.offload.optimizer": "cpu"}
    assert zero_section(lowered("deepspeed", values))["offload_optimizer"]["pin_memory"] is True
    assert zero_section(lowered("deepspeed", values, device="cpu"))["offload_optimizer"]["pin_memory"] is False


def test_a_programs_own_optimizer_may_be_offloaded_through_accelerate() -> None:
    # DeepSpeed refuses it otherwise; its own section in the file needs no such thing.
    values = {STRATEGY: "zero3", **OFFLOADED}
    assert json.loads(lowered("accelerate", values).files["deepspeed.json"])["zero_force_ds_cpu_optimizer"] is False
    assert "zero_force_ds_cpu_optimizer" not in json.loads(lowered("deepspeed", values).files["deepspeed.json"])


def test_zero_plus_plus_is_written_only_where_it_is_asked_for() -> None:
    keys = ("zero_hpz_partition_size", "zero_quantized_weights", "zero_quantized_gradients")
    plain = zero_section(lowered("deepspeed", {STRATEGY: "zero3"}))
    assert not set(keys) & plain.keys()
    names = ("secondary_partition_size", "quantized_weights", "quantized_gradients")
    asked = {f"{DATA}.zero.{name}": value for name, value in zip(names, (4, True, True), strict=True)}
    section = zero_section(lowered("deepspeed", {STRATEGY: "zero3", "training.num_gpus": 8, **asked}))
    assert [section[key] for key in keys] == [4, True, True]


@pytest.mark.parametrize(("processes", "size"), [(1, None), (2, 2), (8, 4)])
def test_a_second_copy_is_no_wider_than_the_job(processes: int, size: int | None) -> None:
    values = {STRATEGY: "zero3", "training.num_gpus": processes, f"{DATA}.zero.secondary_partition_size": 4}
    assert zero_section(lowered("deepspeed", values)).get("zero_hpz_partition_size") == size


def test_hybrid_sharding_is_a_mesh_of_copies_and_shards_for_fsdp_2() -> None:
    section = accelerate_file(lowered("accelerate", HYBRID))["parallelism_config"]
    assert section["parallelism_config_dp_replicate_size"] == 2
    assert section["parallelism_config_dp_shard_size"] == 4
    whole = accelerate_file(lowered("accelerate", HYBRID | {"training.num_gpus": 4}))
    assert "parallelism_config" not in whole


def test_fsdp_1_says_what_is_sharded_in_one_word() -> None:
    # The launcher always exports a sharding strategy, which wins over fsdp_reshard_after_forward.
    one = {STRATEGY: "fsdp", f"{DATA}.fsdp.version": 1}
    kept = {**one, f"{DATA}.fsdp.reshard_after_forward": False}
    machines = {**HYBRID, **one}
    words = [
        accelerate_file(lowered("accelerate", values, num_nodes=nodes))["fsdp_config"]["fsdp_sharding_strategy"]
        for values, nodes in ((one, 1), (kept, 1), (machines, 2), ({**machines, **kept}, 2))
    ]
    assert words == ["FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"]
    assert "fsdp_reshard_after_forward" not in accelerate_file(lowered("accelerate", one))["fsdp_config"]


def test_fsdp_1_copies_between_machines_only() -> None:
    with pytest.raises(CannotLower, match="between machines") as caught:
        lowered("accelerate", {**HYBRID, f"{DATA}.fsdp.version": 1})
    assert refused(caught.value) == [f"{DATA}.shard_group_size"]


def test_units_are_blocks_or_modules_of_a_size_or_the_model() -> None:
    size = {f"{DATA}.fsdp.wrap": "size", f"{DATA}.fsdp.wrap_min_parameters": 1000}
    sections = {
        wrap: accelerate_file(lowered("accelerate", {STRATEGY: "fsdp", **values}))["fsdp_config"]
        for wrap, values in (("blocks", {}), ("size", size), ("model", {f"{DATA}.fsdp.wrap": "model"}))
    }
    policies = [section["fsdp_auto_wrap_policy"] for section in sections.values()]
    assert policies == ["TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"]
    assert sections["size"]["fsdp_min_num_params"] == 1000
    assert "fsdp_transformer_layer_cls_to_wrap" not in sections["model"]


def test_a_script_may_name_its_blocks() -> None:
    values = {"model": None, STRATEGY: "fsdp", f"{DATA}.fsdp.block_classes": ["A", "B"]}
    assert accelerate_file(lowered("accelerate", values))["fsdp_config"]["fsdp_transformer_layer_cls_to_wrap"] == "A,B"


def test_plain_torch_refuses_what_fully_shard_has_not() -> None:
    values = {
        STRATEGY: "fsdp",
        f"{DATA}.fsdp.version": 1,
        f"{DATA}.fsdp.wrap": "size",
        f"{DATA}.fsdp.wrap_min_parameters": 1000,
    }
    with pytest.raises(CannotLower) as caught:
        lowered("native", values)
    assert refused(caught.value) == [f"{DATA}.fsdp.version", f"{DATA}.fsdp.wrap"]
    written = json.loads(lowered("native", values, allow_lossy=True).files["plan.json"])["recipe"]["parallelism"]
    assert (written["data"]["fsdp"]["version"], written["data"]["fsdp"]["wrap"]) == (2, "blocks")


def test_accelerates_fsdp_always_pins() -> None:
    values = {STRATEGY: "fsdp", **OFFLOADED, f"{DATA}.offload.pin_memory": False}
    with pytest.raises(CannotLower, match="always pins"):
        lowered("accelerate", values)


@pytest.mark.parametrize(
    ("section", "field"),
    [
        ({"offload_optimizer": {"device": "cpu"}}, f"{DATA}.offload.optimizer"),
        ({"zero_quantized_weights": True}, f"{DATA}.zero.quantized_weights"),
        ({"zero_hpz_partition_size": 2}, f"{DATA}.zero.secondary_partition_size"),
    ],
)
def test_a_backends_own_key_may_not_contradict_the_recipe(section: dict[str, Any], field: str) -> None:
    values = {STRATEGY: "zero3", "backends.deepspeed": {"zero_optimization": section}}
    with pytest.raises(CannotLower, match=field):
        lowered("deepspeed", values)
    kept = {"offload_optimizer": {"buffer_count": 5}}
    lowered("deepspeed", {STRATEGY: "zero3", "backends.deepspeed": {"zero_optimization": kept}})


def test_meshes_with_tensor_or_context_parallelism_are_refused() -> None:
    extras = {"parallelism_config": {"parallelism_config_tp_size": 2}}
    with pytest.raises(CannotLower, match="parallelism_config_tp_size is 2, but parallelism makes it 1"):
        lowered("accelerate", {**HYBRID, "backends.accelerate": extras})
    with pytest.raises(CannotLower, match="all of them data-parallel"):
        lowered("accelerate", {STRATEGY: "fsdp", "backends.accelerate": extras})


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({f"{DATA}.offload.parameters": "nvme", f"{DATA}.offload.nvme_path": "/nowhere"}, "nvme needs a CUDA device"),
        ({f"{DATA}.zero.quantized_weights": True}, "on CUDA devices only"),
        ({f"{DATA}.zero.quantized_gradients": True}, "on CUDA devices only"),
    ],
)
def test_what_no_cpu_runs_is_lowered_and_refused_at_the_start(values: dict[str, Any], problem: str) -> None:
    settled = plan("deepspeed", {STRATEGY: "zero3", **values}, device="cpu")
    with pytest.raises(EnvironmentNotFit, match=problem):
        check_device_can(settled)
    assert lowered("deepspeed", {STRATEGY: "zero3", **values}, device="cpu").files


@pytest.mark.parametrize("kind", ["absent", "file", "folder"])
def test_the_folder_for_nvme_is_looked_at_before_the_start(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "nvme"
    if kind == "file":
        folder.write_text("")
    elif kind == "folder":
        folder.mkdir()
    values = {STRATEGY: "zero3", f"{DATA}.offload.optimizer": "nvme", f"{DATA}.offload.nvme_path": str(folder)}
    with pytest.raises(EnvironmentNotFit) as caught:
        preflight(
            plan("deepspeed", values, device="cpu"),
            probe_machine({}),
            program=None,
            launcher="sh",
            address=None,
            node_rank=0,
            environment={},
        )
    assert ("is no folder on this machine" in str(caught.value)) is (kind != "folder")


def test_what_another_backend_has_falls_back_to_a_valid_recipe() -> None:
    zero = {
        STRATEGY: "zero3",
        "training.num_gpus": 4,
        f"{DATA}.offload.optimizer": "nvme",
        f"{DATA}.offload.nvme_path": "/local_nvme",
        f"{DATA}.zero.quantized_weights": True,
    }
    with pytest.raises(CannotLower) as caught:
        lowered("native", zero)
    optimizer, parameters = f"{DATA}.offload.optimizer", f"{DATA}.offload.parameters"
    assert refused(caught.value) == [STRATEGY, f"{DATA}.zero.quantized_weights", optimizer, parameters]
    hybrid = {**HYBRID, f"{DATA}.fsdp.reshard_after_forward": False}
    for backend, values in (("native", zero), ("deepspeed", hybrid)):
        written = json.loads(lowered(backend, values, allow_lossy=True).files["plan.json"])  # type: ignore[arg-type]
        assert broken_rules(msgspec.convert(written["recipe"], Recipe)) == []
    assert written["recipe"]["parallelism"]["data"]["zero"]["secondary_partition_size"] == 4
