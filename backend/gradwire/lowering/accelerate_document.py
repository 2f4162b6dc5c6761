"""Makes the Accelerate YAML of a plan, every top-level key written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from gradwire.documents.plan_schema import Plan
from gradwire.lowering.deepspeed_document import FILE as DEEPSPEED_FILE
from gradwire.lowering.deepspeed_document import zero_stage
from gradwire.lowering.placement import Placement, endpoint

FILE = "accelerate.yaml"

_BLOCK_CLASSES = {"llama": "LlamaDecoderLayer", "gpt2": "GPT2Block"}


def accelerate_document(plan: Plan, placement: Placement) -> dict[str, Any]:
    world = plan.world
    document: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "debug": False,
        "distributed_type": distributed_type(plan),
        "downcast_bf16": False,
        "enable_cpu_affinity": False,
        "gpu_ids": "all",
        "machine_rank": placement.node_rank,
        # 0: a free port, so that two runs on one machine do not meet.
        "main_process_port": 0,
        "main_training_function": "main",
        "num_machines": world.num_nodes,
        "num_processes": world.world_size,
        "rdzv_backend": "static",
        "same_network": True,
        "tpu_env": [],
        "tpu_use_cluster": False,
        "tpu_use_sudo": False,
        "use_cpu": world.device == "cpu",
    }
    if world.num_nodes > 1:
        meeting = endpoint(placement)
        document |= {"main_process_ip": meeting.host, "main_process_port": meeting.port}
    match document["distributed_type"]:
        case "DEEPSPEED":
            # Accelerate refuses mixed_precision, stage, accumulation or clipping beside a DeepSpeed file.
            document["deepspeed_config"] = {
                "deepspeed_config_file": str(placement.out_folder / DEEPSPEED_FILE),
                "deepspeed_multinode_launcher": "standard",
                "zero3_init_flag": zero_stage(plan) == 3,
            }
        case "FSDP":
            document |= {"mixed_precision": _mixed_precision(plan), "fsdp_config": _fsdp_section(plan)}
        case _:
            document["mixed_precision"] = _mixed_precision(plan)
    return document


def is_zero(plan: Plan) -> bool:
    return plan.recipe.parallelism.data.strategy.startswith("zero")


def distributed_type(plan: Plan) -> str:
    strategy = plan.recipe.parallelism.data.strategy
    if strategy == "ddp":
        # On a CPU too: MULTI_CPU starts a single process without mpirun, MULTI_GPU starts them all, and
        # ACCELERATE_USE_CPU makes them meet over gloo.
        return "NO" if plan.world.world_size == 1 else "MULTI_GPU"
    return "FSDP" if strategy == "fsdp" else "DEEPSPEED"


def _mixed_precision(plan: Plan) -> str:
    match plan.recipe.training.precision:
        case "bf16-mixed":
            return "bf16"
        case "fp16-mixed":
            return "fp16"
        case _:
            return "no"


def _fsdp_section(plan: Plan) -> dict[str, Any]:
    section: dict[str, Any] = {
        "fsdp_version": 2,
        # The program recomputes activations; here it would do so twice.
        "fsdp_activation_checkpointing": False,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_backward_prefetch": "NO_PREFETCH",
        "fsdp_cpu_ram_efficient_loading": False,
        "fsdp_offload_params": False,
        "fsdp_reshard_after_forward": True,
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    }
    if plan.recipe.model is not None:
        section["fsdp_transformer_layer_cls_to_wrap"] = _BLOCK_CLASSES[plan.recipe.model.family]
    return section


def yaml_text(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=True, default_flow_style=False, allow_unicode=True, width=1000)
