"""Makes the Accelerate YAML of a plan, every top-level key written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from gradwire.artifact import ACCELERATE_FILE, DEEPSPEED_FILE
from gradwire.documents.plan_schema import Plan
from gradwire.lowering.compilation import dynamo_section
from gradwire.lowering.deepspeed_document import zero_stage
from gradwire.lowering.placement import Placement, endpoint
from gradwire.lowering.sharding import is_hybrid
from gradwire.plan import shard_group_size

FILE = ACCELERATE_FILE

_BLOCK_CLASSES = {"llama": "LlamaDecoderLayer", "gpt2": "GPT2Block"}
_WRAP_POLICIES = {"blocks": "TRANSFORMER_BASED_WRAP", "size": "SIZE_BASED_WRAP", "model": "NO_WRAP"}


def accelerate_document(plan: Plan, placement: Placement) -> dict[str, Any]:
    """Return Accelerate's configuration of `plan` for the machine at `placement`."""
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
            document |= {"mixed_precision": _mixed_precision(plan), "fsdp_config": fsdp_section(plan)}
            if is_meshed(plan):
                document["parallelism_config"] = _parallelism_section(plan)
        case _:
            document["mixed_precision"] = _mixed_precision(plan)
    if dynamo_section(plan) and document["distributed_type"] != "DEEPSPEED":
        # Under DEEPSPEED the launcher does not pass it on.
        document["dynamo_config"] = dynamo_section(plan)
    if document.get("mixed_precision") == "fp8":
        document["fp8_config"] = _fp8_section(plan)
    return document


def is_zero(plan: Plan) -> bool:
    """Return whether the plan's strategy is a ZeRO stage, which DeepSpeed runs."""
    return plan.recipe.parallelism.data.strategy.startswith("zero")


def distributed_type(plan: Plan) -> str:
    """Return Accelerate's word for the plan's strategy."""
    strategy = plan.recipe.parallelism.data.strategy
    if strategy == "ddp":
        # On a CPU too: MULTI_CPU starts a single process without mpirun, MULTI_GPU starts them all, and
        # ACCELERATE_USE_CPU makes them meet over gloo.
        return "NO" if plan.world.world_size == 1 else "MULTI_GPU"
    return "FSDP" if strategy == "fsdp" else "DEEPSPEED"


def _mixed_precision(plan: Plan) -> str:
    match plan.recipe.training.precision:
        case "bf16-mixed" if plan.recipe.training.fp8 != "none":
            return "fp8"
        case "bf16-mixed":
            return "bf16"
        case "fp16-mixed":
            return "fp16"
        case _:
            return "no"


def _fp8_section(plan: Plan) -> dict[str, Any]:
    if plan.recipe.training.fp8 == "torchao":
        return {"fp8_backend": "ao", "fp8_enable_fsdp_float8_all_gather": True, "fp8_pad_inner_dim": True}
    return {
        "fp8_backend": "te",
        "fp8_format": "HYBRID",
        "fp8_amax_compute_algo": "most_recent",
        "fp8_amax_history_len": 1024,
        "fp8_interval": 1,
        "fp8_margin": 0,
        "fp8_use_autocast_during_eval": False,
    }


def is_meshed(plan: Plan) -> bool:
    """Return whether Accelerate needs a mesh of copies x shards: FSDP 2 with several copies of the model."""
    data = plan.recipe.parallelism.data
    return data.strategy == "fsdp" and data.fsdp.version == 2 and is_hybrid(plan)


def _parallelism_section(plan: Plan) -> dict[str, Any]:
    ranks, group = plan.batch.data_parallel_size, shard_group_size(plan)
    sizes = {"dp_replicate": ranks // group, "dp_shard": group, "tp": 1, "cp": 1, "sp": 1}
    return {f"parallelism_config_{name}_size": size for name, size in sizes.items()}


def fsdp_section(plan: Plan) -> dict[str, Any]:
    """Return the fsdp_config of `plan`; every key of the chosen version written."""
    data = plan.recipe.parallelism.data
    fsdp = data.fsdp
    section: dict[str, Any] = {
        "fsdp_version": fsdp.version,
        # The program recomputes activations; here it would do so twice.
        "fsdp_activation_checkpointing": False,
        "fsdp_auto_wrap_policy": _WRAP_POLICIES[fsdp.wrap],
        "fsdp_backward_prefetch": "NO_PREFETCH",
        "fsdp_cpu_ram_efficient_loading": fsdp.cpu_ram_efficient_loading,
        "fsdp_offload_params": data.offload.parameters == "cpu",
        "fsdp_state_dict_type": "FULL_STATE_DICT" if fsdp.state_dict == "full" else "SHARDED_STATE_DICT",
    }
    if fsdp.version == 1:
        # The launcher always exports a sharding strategy, which wins over fsdp_reshard_after_forward.
        section |= {
            "fsdp_forward_prefetch": False,
            "fsdp_sharding_strategy": sharding_strategy(plan),
            "fsdp_sync_module_states": fsdp.sync_module_states,
            "fsdp_use_orig_params": True,
        }
    else:
        section["fsdp_reshard_after_forward"] = fsdp.reshard_after_forward
        if fsdp.cpu_ram_efficient_loading:
            # FSDP 2 ignores it, but the launcher refuses efficient loading without.
            section["fsdp_sync_module_states"] = True
    if fsdp.wrap == "size":
        section["fsdp_min_num_params"] = fsdp.wrap_min_parameters
    if fsdp.wrap == "blocks" and block_classes(plan):
        section["fsdp_transformer_layer_cls_to_wrap"] = ",".join(block_classes(plan))
    return section


def sharding_strategy(plan: Plan) -> str:
    """Return FSDP 1's name for what the plan shards, and whether it is gathered again for the backward pass."""
    keeps = not plan.recipe.parallelism.data.fsdp.reshard_after_forward
    if is_hybrid(plan):
        return "HYBRID_SHARD_ZERO2" if keeps else "HYBRID_SHARD"
    return "SHARD_GRAD_OP" if keeps else "FULL_SHARD"


def block_classes(plan: Plan) -> list[str]:
    """Return the class names of the blocks that are units of FSDP; none: those that the model itself names."""
    if plan.recipe.model is not None:
        return [_BLOCK_CLASSES[plan.recipe.model.family]]
    return plan.recipe.parallelism.data.fsdp.block_classes or []


def yaml_text(document: Mapping[str, Any]) -> str:
    """Return a document as YAML 1.1, as PyYAML reads it: sorted keys, a line for each."""
    return yaml.safe_dump(document, sort_keys=True, default_flow_style=False, allow_unicode=True, width=1000)
