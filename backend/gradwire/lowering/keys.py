"""Knows the keys of the targets' configuration files, for the versions that Gradwire was checked against."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from functools import cache
from typing import Any

from gradwire.resources import schema_text

# accelerate 1.15.0, ClusterConfig.
ACCELERATE_KEYS = frozenset(
    [
        "command_file",
        "commands",
        "compute_environment",
        "debug",
        "deepspeed_config",
        "distributed_type",
        "downcast_bf16",
        "dynamo_config",
        "enable_cpu_affinity",
        "fp8_config",
        "fsdp_config",
        "gpu_ids",
        "machine_rank",
        "main_process_ip",
        "main_process_port",
        "main_training_function",
        "megatron_lm_config",
        "mixed_precision",
        "mpirun_config",
        "num_machines",
        "num_processes",
        "parallelism_config",
        "rdzv_backend",
        "same_network",
        "tpu_env",
        "tpu_name",
        "tpu_use_cluster",
        "tpu_use_sudo",
        "tpu_vm",
        "tpu_zone",
        "use_cpu",
    ]
)

# accelerate 1.15.0: keys below a section are not checked by its loader. Those of FSDP 1 do nothing, or fail, under 2;
# beside a DeepSpeed file the other keys of deepspeed_config are refused when the plugin starts.
ACCELERATE_KEYS_BELOW = {
    "fsdp_config": frozenset(
        [
            "fsdp_activation_checkpointing",
            "fsdp_activation_checkpointing_offload",
            "fsdp_auto_wrap_policy",
            "fsdp_cpu_ram_efficient_loading",
            "fsdp_min_num_params",
            "fsdp_offload_params",
            "fsdp_reshard_after_forward",
            "fsdp_state_dict_type",
            "fsdp_transformer_layer_cls_to_wrap",
            "fsdp_version",
        ]
    ),
    "dynamo_config": frozenset(
        f"dynamo_{name}" for name in ("backend", "mode", "use_dynamic", "use_fullgraph", "use_regional_compilation")
    ),
    "fp8_config": frozenset(
        f"fp8_{name}"
        for name in (
            "amax_compute_algo",
            "amax_history_len",
            "backend",
            "enable_fsdp_float8_all_gather",
            "format",
            "interval",
            "margin",
            "override_linear_precision",
            "pad_inner_dim",
            "use_autocast_during_eval",
        )
    ),
    "parallelism_config": frozenset(
        f"parallelism_config_{name}" for name in ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size", "sp_size")
    ),
    "deepspeed_config": frozenset(
        [
            "deepspeed_config_file",
            "deepspeed_moe_layer_cls_names",
            "deepspeed_multinode_launcher",
            "zero3_init_flag",
        ]
    ),
}

# Read by FSDP 1 only; a recipe says nothing of them.
FSDP1_KEYS = frozenset(["fsdp_backward_prefetch", "fsdp_forward_prefetch", "fsdp_use_orig_params"])


@cache
def deepspeed_keys() -> Mapping[str, Set[str]]:
    """Return the keys that DeepSpeed reads: those of the top level under "", those of each section under its name."""
    schema = json.loads(schema_text("deepspeed"))
    keys: dict[str, Set[str]] = {"": frozenset(schema["properties"])}
    for name, entry in schema["properties"].items():
        below = frozenset(_keys_of_section(entry, schema["$defs"]))
        if below:
            keys[name] = below
    return keys


def _keys_of_section(entry: Mapping[str, Any], definitions: Mapping[str, Any]) -> Iterator[str]:
    for form in (entry, *entry.get("anyOf", ())):
        if "$ref" in form:
            yield from definitions[form["$ref"].rpartition("/")[2]].get("properties", {})
