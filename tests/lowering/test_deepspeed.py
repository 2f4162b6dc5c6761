"""What DeepSpeed's JSON says of a recipe, and how `deepspeed` is started."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gradwire.errors import CannotLower
from gradwire.plan import Device
from tests.lowering.drawing import METHOD, STRATEGY, lowered

CAP = "communication.overlap.bucket_cap_mb"
AFTERWARDS = {
    STRATEGY: "zero1",
    "training.precision": "bf16-mixed",
    "training.gradient_accumulation_dtype": "fp32",
}
"""What DeepSpeed runs with its BF16_Optimizer, which reduces after the backward pass."""


def config(values: dict[str, Any] | None = None, *, device: Device = "cuda") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lowered("deepspeed", values, device=device).files["deepspeed.json"])
    return found


def test_no_value_is_left_to_be_filled_in() -> None:
    for strategy in ("ddp", "zero1", "zero2", "zero3"):
        assert '"auto"' not in json.dumps(config({STRATEGY: strategy}))


def test_no_clipping_is_written_as_zero_because_absent_means_one() -> None:
    assert config()["gradient_clipping"] == 0
    assert config({"training.gradient_clip": 0.5})["gradient_clipping"] == 0.5


def test_batch_sizes_multiply_out_over_the_ranks() -> None:
    found = config(
        {"training.num_gpus": 6, "training.batch_size_per_gpu": 4, "training.gradient_accumulation": 3}, device="cpu"
    )
    assert found["train_batch_size"] == 72
    assert found["train_micro_batch_size_per_gpu"] == 4
    assert found["gradient_accumulation_steps"] == 3


@pytest.mark.parametrize(
    ("precision", "elements"), [("fp32", 2 * 1024 * 1024 // 4), ("bf16-mixed", 2 * 1024 * 1024 // 2)]
)
def test_buckets_are_counted_in_elements_of_what_travels(precision: str, elements: int) -> None:
    found = config({STRATEGY: "zero2", CAP: 2, "training.precision": precision})
    assert found["zero_optimization"]["reduce_bucket_size"] == elements


def test_a_bucket_of_part_of_an_element_holds_one() -> None:
    assert config({STRATEGY: "zero1", CAP: 1e-9})["zero_optimization"]["reduce_bucket_size"] == 1


def test_no_bucket_is_written_where_nothing_reads_it() -> None:
    assert set(config(AFTERWARDS)["zero_optimization"]) == {"stage", "allgather_bucket_size"}
    offloaded = {**AFTERWARDS, "parallelism.data.offload.optimizer": "cpu"}
    assert "reduce_bucket_size" in config(offloaded)["zero_optimization"]


@pytest.mark.parametrize(("optimizer", "decoupled"), [("Adam", False), ("AdamW", True)])
def test_adam_is_not_turned_into_adamw(optimizer: str, decoupled: bool) -> None:
    found = config({"training.optimizer": optimizer, "training.weight_decay": 0.1})["optimizer"]
    assert found["type"] == optimizer
    assert found["params"]["adam_w_mode"] is decoupled
    assert found["params"]["weight_decay"] == 0.1


def test_on_a_cpu_no_kernel_is_compiled_for_the_optimizer() -> None:
    assert config(device="cpu")["optimizer"]["params"]["torch_adam"] is True
    assert config(device="cuda")["optimizer"]["params"]["torch_adam"] is False


def test_sgd_takes_its_own_parameters_and_leave_to_run_under_zero() -> None:
    found = config({"training.optimizer": "SGD", "training.momentum": 0.9, STRATEGY: "zero1"})
    assert found["optimizer"]["params"] == {"lr": 0.0003, "momentum": 0.9, "weight_decay": 0.0}
    assert found["zero_allow_untested_optimizer"] is True


def test_pure_bf16_keeps_no_fp32_copy() -> None:
    found = config({"training.precision": "bf16-true", STRATEGY: "zero2"})["bf16"]
    assert (found["enabled"], found["bf16_master_weights_and_grads"], found["bf16_optimizer_states"]) == (True,) * 3


def test_without_zero_mixed_precision_is_autocast() -> None:
    # DeepSpeed's bf16 wrapper takes a step on zero gradients before the first; test_starting.py shows it.
    found = config({"training.precision": "bf16-mixed"})
    assert found["torch_autocast"] == {"enabled": True, "dtype": "bfloat16"}
    assert found["bf16"] == {"enabled": False}
    assert found["communication_data_type"] == "fp32"


def test_the_loss_scale_of_fp16_moves_as_that_of_torch() -> None:
    found = config({"training.precision": "fp16-mixed", STRATEGY: "zero2"})["fp16"]
    assert (found["loss_scale"], found["initial_scale_power"], found["loss_scale_window"]) == (0, 16, 2000)


def test_fp16_on_a_cpu_is_refused_with_bf16_as_the_nearest() -> None:
    with pytest.raises(CannotLower, match=r"training\.precision.*nearest: bf16-mixed"):
        lowered("deepspeed", {"training.precision": "fp16-mixed"}, device="cpu")


def test_a_cast_for_the_wire_becomes_the_communication_type() -> None:
    found = config({METHOD: "bf16"})
    assert found["communication_data_type"] == "bf16"
    # Divided before the sum, which keeps it in range.
    assert found["prescale_gradients"] is True


def test_the_nearest_to_torchs_fp16_hook_is_a_cast_for_the_wire() -> None:
    with pytest.raises(CannotLower, match=f"{METHOD}.*without DDP's hooks; nearest: fp16"):
        lowered("deepspeed", {METHOD: "fp16-torch"})


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({STRATEGY: "fsdp"}, STRATEGY),
        ({METHOD: "powersgd"}, METHOD),
        ({METHOD: "int8"}, METHOD),
        ({CAP: 25}, CAP),
        ({CAP: 25, **AFTERWARDS}, CAP),
        ({"communication.overlap.static_graph": True}, "communication.overlap.static_graph"),
    ],
)
def test_what_deepspeed_cannot_do_is_refused_by_name(values: dict[str, Any], path: str) -> None:
    with pytest.raises(CannotLower, match=path):
        lowered("deepspeed", values)
    assert lowered("deepspeed", values, allow_lossy=True).report.fields


def test_what_is_refused_is_shown_as_a_recipe_writes_it() -> None:
    with pytest.raises(CannotLower) as caught:
        lowered("deepspeed", {"parallelism.pipeline": {"stages": None, "chunks": 2, "schedule": "1f1b"}})
    assert "parallelism.pipeline.stages: null: " in str(caught.value)
    assert 'parallelism.pipeline.schedule: "1f1b": ' in str(caught.value)


def test_hidden_defaults_are_reported_with_what_they_would_have_done() -> None:
    values = {STRATEGY: "zero2", "training.optimizer": "Adam"}
    written = {default.key: default for default in lowered("deepspeed", values).report.defaults}
    assert written["gradient_clipping"].hidden_default == 1.0
    assert written["zero_optimization.overlap_comm"].hidden_default is False
    assert written["optimizer.params.adam_w_mode"].hidden_default is True
    assert all(default.value != default.hidden_default for default in written.values())


def test_the_launcher_starts_the_ranks_of_one_machine_on_a_port_of_the_recipes_own() -> None:
    command = lowered("deepspeed", device="cpu").report.command
    assert command[:4] == ["deepspeed", "--num_gpus", "2", "--no_local_rank"]
    assert command[-3:] == ["--module", "gradwire.train", "plan.json"]
    assert 20000 <= int(command[command.index("--master_port") + 1]) < 28000
    other = lowered("deepspeed", {"training.seed": 1}, device="cpu").report.command
    assert command != other


def test_several_machines_meet_without_ssh() -> None:
    artifact = lowered("deepspeed", {"training.num_gpus": 16}, num_nodes=2, node_rank=1)
    assert artifact.files["hostfile"] == "node-0 slots=8\nnode-1 slots=8\n"
    command = " ".join(artifact.report.command)
    assert "--hostfile hostfile --no_ssh --num_nodes 2 --node_rank 1 --num_gpus 8" in command
    assert "--master_addr 10.0.0.1 --master_port 29400" in command
    assert 'NODE_RANK="${NODE_RANK:-${SLURM_NODEID:-}}"' in artifact.files["launch.sh"]


def test_a_cpu_run_says_so_in_its_environment() -> None:
    assert lowered("deepspeed", device="cpu").environment["DS_ACCELERATOR"] == "cpu"
    assert "DS_ACCELERATOR" not in lowered("deepspeed", device="cuda").environment
