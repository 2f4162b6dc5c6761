"""Says what Accelerate's FSDP makes of a plan: refusals, outcomes, and hidden defaults overwritten."""

from __future__ import annotations

from gradwire.documents.lowering_schema import WrittenDefault
from gradwire.documents.plan_schema import Plan
from gradwire.lowering.accelerate_document import FILE, block_classes, fsdp_section, sharding_strategy
from gradwire.lowering.fields import Outcome, Refusal, emulated, exact, unused
from gradwire.lowering.sharding import FSDP, is_hybrid, unused_sharding
from gradwire.plan import pins_memory, shard_group_size

FSDP_FIELDS = {
    f"fsdp_config.{key}": field
    for key, field in {
        "fsdp_version": f"{FSDP}.version",
        "fsdp_activation_checkpointing": "training.gradient_checkpointing",
        "fsdp_auto_wrap_policy": f"{FSDP}.wrap",
        "fsdp_cpu_ram_efficient_loading": f"{FSDP}.cpu_ram_efficient_loading",
        "fsdp_min_num_params": f"{FSDP}.wrap_min_parameters",
        "fsdp_offload_params": "parallelism.data.offload.parameters",
        "fsdp_reshard_after_forward": f"{FSDP}.reshard_after_forward",
        "fsdp_state_dict_type": f"{FSDP}.state_dict",
        "fsdp_transformer_layer_cls_to_wrap": f"{FSDP}.block_classes",
    }.items()
}
"""Which recipe field decides each key of fsdp_config, by dotted key of the file."""

_GROUP = "parallelism.data.shard_group_size"
_PIN = "parallelism.data.offload.pin_memory"


def accelerate_fsdp_refusals(plan: Plan) -> list[Refusal]:
    """Return what Accelerate's FSDP cannot express of a plan whose strategy is fsdp."""
    data, world = plan.recipe.parallelism.data, plan.world
    found = []
    if data.fsdp.version == 1 and is_hybrid(plan) and shard_group_size(plan) != world.processes_per_node:
        limit = (
            f"Accelerate's FSDP 1 shards over the {world.processes_per_node} ranks of a machine and copies between "
            f"machines, not in groups of {shard_group_size(plan)}"
        )
        fallback = {f"{FSDP}.version": 2, f"{FSDP}.sync_module_states": False}
        found.append(Refusal(path=_GROUP, limit=limit, nearest="fsdp.version 2, which takes any", fallback=fallback))
    if data.offload.parameters != "none" and data.offload.pin_memory is False and world.device == "cuda":
        limit = "Accelerate's FSDP always pins the memory that it offloads to"
        found.append(Refusal(path=_PIN, limit=limit, nearest="pin_memory left out", fallback={_PIN: None}))
    return found


def accelerate_fsdp_outcomes(plan: Plan) -> dict[str, Outcome]:
    """Return the outcomes of the sharding fields of a plan whose strategy is fsdp, in an Accelerate YAML."""
    data = plan.recipe.parallelism.data
    section = f"{FILE} fsdp_config."
    outcomes = unused_sharding(plan) | {
        f"{FSDP}.version": exact(f"{section}fsdp_version"),
        f"{FSDP}.reshard_after_forward": _reshard_outcome(plan, section),
        f"{FSDP}.wrap": exact(f"{section}fsdp_auto_wrap_policy"),
        f"{FSDP}.state_dict": exact(f"{section}fsdp_state_dict_type", "read when the script saves through Accelerate"),
        f"{FSDP}.cpu_ram_efficient_loading": exact(
            f"{section}fsdp_cpu_ram_efficient_loading", "read by transformers' from_pretrained"
        ),
        f"{FSDP}.sync_module_states": exact(f"{section}fsdp_sync_module_states")
        if data.fsdp.version == 1
        else unused("FSDP 2 has no such setting"),
    }
    if data.fsdp.wrap == "size":
        outcomes[f"{FSDP}.wrap_min_parameters"] = exact(f"{section}fsdp_min_num_params")
    if plan.recipe.model is None and block_classes(plan):
        outcomes[f"{FSDP}.block_classes"] = exact(f"{section}fsdp_transformer_layer_cls_to_wrap")
    if data.offload.parameters != "none":
        carried = exact(f"{section}fsdp_offload_params")
        outcomes |= {f"parallelism.data.offload.{name}": carried for name in ("optimizer", "parameters")}
        outcomes[_PIN] = (
            exact(f"{section}fsdp_offload_params", "Accelerate pins the memory it offloads to")
            if pins_memory(plan)
            else unused("the device is the CPU")
        )
    if is_hybrid(plan):
        carrier = (
            f"{FILE} parallelism_config.parallelism_config_dp_shard_size"
            if data.fsdp.version == 2
            else f"{section}fsdp_sharding_strategy"
        )
        outcomes[_GROUP] = exact(carrier)
    return outcomes


def fsdp_defaults(plan: Plan) -> list[WrittenDefault]:
    """Return the hidden defaults of Accelerate's FSDP that the file overwrites, with what each would have done."""
    section = fsdp_section(plan)
    hidden: list[tuple[str, object, str]] = [
        ("fsdp_version", 1, "Accelerate would wrap with the older FSDP 1"),
        ("fsdp_auto_wrap_policy", "NO_WRAP", "the whole model would be one shard group, gathered at once"),
        ("fsdp_cpu_ram_efficient_loading", True, "rank 0 alone would read a pretrained checkpoint"),
        ("fsdp_sync_module_states", True, "rank 0's weights would be sent to every rank"),
    ]
    return [
        WrittenDefault(key=f"fsdp_config.{key}", value=section[key], hidden_default=default, why=why)
        for key, default, why in hidden
        if key in section and section[key] != default
    ]


def _reshard_outcome(plan: Plan, section: str) -> Outcome:
    data = plan.recipe.parallelism.data
    if data.fsdp.version == 1:
        return exact(f"{section}fsdp_sharding_strategy", f"{sharding_strategy(plan)}")
    if not data.fsdp.reshard_after_forward:
        return exact(f"{section}fsdp_reshard_after_forward")
    return emulated(
        f"{section}fsdp_reshard_after_forward",
        "Accelerate makes the final norm and the output projection a unit that is never freed after the forward pass",
    )
