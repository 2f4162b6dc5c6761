"""What Accelerate's FSDP plugin reads from the launcher's environment, beside what the plan says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from gradwire.documents.plan_schema import Plan
from gradwire.plan import shard_group_size
from gradwire.train.deepspeed_config import Pairs

BLOCK_CLASSES = {"llama": "LlamaDecoderLayer", "gpt2": "GPT2Block"}
_WRAP = {"blocks": "transformer_auto_wrap_policy", "size": "size_based_auto_wrap_policy", "model": None}


def fsdp_pairs(plan: Plan, environment: Mapping[str, str]) -> Pairs:
    """Yield (key, planned, loaded) for each value of fsdp_config and parallelism_config that the plan decides.

    `environment` is what `accelerate launch` gives its ranks.
    """
    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.utils import FullyShardedDataParallelPlugin, patch_environment

    data = plan.recipe.parallelism.data
    fsdp = data.fsdp
    yield (
        "fsdp_cpu_ram_efficient_loading",
        *_flag(fsdp.cpu_ram_efficient_loading, environment, "FSDP_CPU_RAM_EFFICIENT_LOADING"),
    )
    if fsdp.version == 1:
        yield "fsdp_sync_module_states", *_flag(fsdp.sync_module_states, environment, "FSDP_SYNC_MODULE_STATES")
    # These two make the plugin look for a device, of which this machine may have none.
    unread = {} if torch.cuda.is_available() else dict.fromkeys(_NEED_A_DEVICE, "false")
    with patch_environment(**{**environment, **unread}):
        plugin = FullyShardedDataParallelPlugin()
        mesh = ParallelismConfig()
    yield from plugin_pairs(plan, plugin, mesh)


def plugin_pairs(plan: Plan, plugin: Any, mesh: Any) -> Pairs:
    """Yield the same for a plugin and a parallelism_config that were made already."""
    data = plan.recipe.parallelism.data
    fsdp = data.fsdp
    yield "fsdp_version", fsdp.version, plugin.fsdp_version
    if fsdp.version == 1:
        # As Accelerate chooses when it wraps the model.
        strategy = plugin.sharding_strategy or plugin.reshard_after_forward
        yield "fsdp_sharding_strategy", _sharding_strategy(plan), strategy.name.lstrip("_")
        yield "fsdp_offload_params", data.offload.parameters == "cpu", plugin.cpu_offload.offload_params
    else:
        yield "fsdp_reshard_after_forward", fsdp.reshard_after_forward, plugin.reshard_after_forward
        offloads = type(plugin.cpu_offload).__name__ == "CPUOffloadPolicy"
        yield "fsdp_offload_params", data.offload.parameters == "cpu", offloads
    yield "fsdp_activation_checkpointing", False, plugin.activation_checkpointing
    policy = None if plugin.auto_wrap_policy is None else plugin.auto_wrap_policy.__name__
    yield "fsdp_auto_wrap_policy", _WRAP[fsdp.wrap], policy
    if fsdp.wrap == "size":
        yield "fsdp_min_num_params", fsdp.wrap_min_parameters, plugin.min_num_params
    if fsdp.wrap == "blocks":
        named = fsdp.block_classes if plan.recipe.model is None else [BLOCK_CLASSES[plan.recipe.model.family]]
        yield "fsdp_transformer_layer_cls_to_wrap", named, plugin.transformer_cls_names_to_wrap
    yield "fsdp_state_dict_type", f"{fsdp.state_dict}_state_dict".upper(), plugin.state_dict_type.name
    group = shard_group_size(plan)
    copies = plan.batch.data_parallel_size // group
    is_meshed = fsdp.version == 2 and copies > 1
    yield "parallelism_config_dp_replicate_size", copies if is_meshed else 1, mesh.dp_replicate_size
    yield "parallelism_config_dp_shard_size", group if is_meshed else 1, mesh.dp_shard_size
    others = (mesh.tp_size, mesh.cp_size, mesh.sp_size)
    yield "parallelism_config_tp_size, cp_size and sp_size", (1, 1, 1), others


_NEED_A_DEVICE = ("FSDP_SYNC_MODULE_STATES", "FSDP_CPU_RAM_EFFICIENT_LOADING")


def _flag(planned: bool, environment: Mapping[str, str], name: str) -> tuple[bool, Any]:
    return planned, {"true": True, "false": False}.get(environment[name], environment[name])


def _sharding_strategy(plan: Plan) -> str:
    kept = not plan.recipe.parallelism.data.fsdp.reshard_after_forward
    if shard_group_size(plan) < plan.batch.data_parallel_size:
        return "HYBRID_SHARD_ZERO2" if kept else "HYBRID_SHARD"
    return "SHARD_GRAD_OP" if kept else "FULL_SHARD"
