"""Accounts for sharding beyond its strategy: groups of ranks, offloading, ZeRO++, and the settings of fsdp."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradwire.artifact import DEEPSPEED_FILE
from gradwire.documents.plan_schema import Plan
from gradwire.documents.recipe_schema import FullySharded, ZeroPlusPlus
from gradwire.lowering.extras import Decided
from gradwire.lowering.fields import Outcome, Refusal, exact, recipe_paths, unused
from gradwire.plan import secondary_partition_size, shard_group_size

_DATA = "parallelism.data"
_OFFLOAD = f"{_DATA}.offload"
_ZERO = f"{_DATA}.zero"
FSDP = f"{_DATA}.fsdp"


def is_hybrid(plan: Plan) -> bool:
    """Return whether the plan keeps several copies of the model, each sharded over some of the ranks."""
    return shard_group_size(plan) < plan.batch.data_parallel_size


def unused_sharding(plan: Plan) -> dict[str, Outcome]:
    """Return an outcome for every field of `parallelism.data` but the strategy, as if none were asked for."""
    strategy = plan.recipe.parallelism.data.strategy
    owners = {_OFFLOAD: "nothing is offloaded", _ZERO: "nothing of ZeRO++ is asked for", FSDP: "settings of fsdp"}
    notes = {
        path: next((note for owner, note in owners.items() if path.startswith(f"{owner}.")), "one group of all ranks")
        for path in recipe_paths()
        if path.startswith(f"{_DATA}.") and path != f"{_DATA}.strategy"
    }
    if strategy == "fsdp":
        return {path: unused(note) for path, note in notes.items()}
    return {path: unused(f"{note}; the strategy is {strategy}") for path, note in notes.items()}


def zero_sharding_outcomes(plan: Plan) -> dict[str, Outcome]:
    """Return the outcomes of the sharding fields in a DeepSpeed JSON."""
    data = plan.recipe.parallelism.data
    carrier = f"{DEEPSPEED_FILE} zero_optimization."
    outcomes = unused_sharding(plan)
    sections = [
        (name, f"{carrier}{key}")
        for name, key in (("optimizer", "offload_optimizer"), ("parameters", "offload_param"))
        if getattr(data.offload, name) != "none"
    ]
    for name, section in sections:
        outcomes[f"{_OFFLOAD}.{name}"] = exact(f"{section}.device", _step_note(plan) if name == "optimizer" else None)
    if sections:
        outcomes[f"{_OFFLOAD}.pin_memory"] = exact(" and ".join(f"{section}.pin_memory" for _, section in sections))
    if data.offload.nvme_path is not None:
        outcomes[f"{_OFFLOAD}.nvme_path"] = exact(" and ".join(f"{section}.nvme_path" for _, section in sections))
    if data.zero.secondary_partition_size is not None:
        outcomes[f"{_ZERO}.secondary_partition_size"] = (
            exact(f"{carrier}zero_hpz_partition_size")
            if secondary_partition_size(plan) > 1
            else unused("a single process: no second copy")
        )
    for name in ("quantized_weights", "quantized_gradients"):
        if getattr(data.zero, name):
            outcomes[f"{_ZERO}.{name}"] = exact(f"{carrier}zero_{name}")
    return outcomes


def decided_sharding(plan: Plan, document: Mapping[str, Any]) -> Decided:
    """Return what the recipe's sharding fields decide in a DeepSpeed JSON."""
    data, zero = plan.recipe.parallelism.data, document["zero_optimization"]
    decided: dict[str, tuple[str, Any]] = {}
    for name, key, device in (
        ("optimizer", "offload_optimizer", data.offload.optimizer),
        ("parameters", "offload_param", data.offload.parameters),
    ):
        decided[f"zero_optimization.{key}.device"] = (f"{_OFFLOAD}.{name}", device)
        for option in ("pin_memory", "nvme_path"):
            if option in zero.get(key, {}):
                decided[f"zero_optimization.{key}.{option}"] = (f"{_OFFLOAD}.{option}", zero[key][option])
    decided["zero_optimization.zero_hpz_partition_size"] = (
        f"{_ZERO}.secondary_partition_size",
        zero.get("zero_hpz_partition_size", 1),
    )
    for name in ("quantized_weights", "quantized_gradients"):
        decided[f"zero_optimization.zero_{name}"] = (f"{_ZERO}.{name}", getattr(data.zero, name))
    return decided


def program_sharding_outcomes(plan: Plan, by_program: Outcome, *, is_own_script: bool) -> dict[str, Outcome]:
    """Return the outcomes of the sharding fields where the program itself calls fully_shard."""
    data = plan.recipe.parallelism.data
    outcomes = unused_sharding(plan)
    if data.strategy != "fsdp":
        return outcomes
    outcomes |= dict.fromkeys((f"{FSDP}.version", f"{FSDP}.reshard_after_forward", f"{FSDP}.wrap"), by_program)
    loading = (f"{FSDP}.state_dict", f"{FSDP}.cpu_ram_efficient_loading", f"{FSDP}.sync_module_states")
    if is_own_script:
        outcomes |= dict.fromkeys((*loading, f"{FSDP}.block_classes"), by_program)
    else:
        outcomes |= dict.fromkeys(loading, unused("gradwire.train reads and writes no checkpoint"))
    if data.offload.parameters != "none":
        names = ("optimizer", "parameters", "pin_memory")
        outcomes |= {f"{_OFFLOAD}.{name}": by_program for name in names}
    if is_hybrid(plan):
        outcomes[f"{_DATA}.shard_group_size"] = by_program
    return outcomes


def refuse_zero_sharding(plan: Plan) -> list[Refusal]:
    """Return the refusals of what only DeepSpeed shards or offloads; falls back to what fully_shard offloads."""
    data = plan.recipe.parallelism.data
    if not data.strategy.startswith("zero"):
        return []
    found = []
    default = ZeroPlusPlus()
    for name in ZeroPlusPlus.__struct_fields__:
        if getattr(data.zero, name) != getattr(default, name):
            path = f"{_ZERO}.{name}"
            fallback = {path: getattr(default, name)}
            found.append(Refusal(path=path, limit="ZeRO++ is DeepSpeed's", nearest="without it", fallback=fallback))
    places = {data.offload.optimizer, data.offload.parameters}
    if places == {"none"} or places == {"cpu"}:
        return found
    limit = "fully_shard offloads parameters and optimizer together, to the CPU"
    everything = {f"{_OFFLOAD}.optimizer": "cpu", f"{_OFFLOAD}.parameters": "cpu", f"{_OFFLOAD}.nvme_path": None}
    found += [
        Refusal(path=f"{_OFFLOAD}.{name}", limit=limit, nearest="cpu", fallback=everything)
        for name in ("optimizer", "parameters")
        if getattr(data.offload, name) != "cpu"
    ]
    return found


def refuse_fully_sharded(plan: Plan, limit: str) -> list[Refusal]:
    """Return the refusals of what only torch's fully sharded data parallelism can be told."""
    data, default = plan.recipe.parallelism.data, FullySharded()
    if data.strategy != "fsdp":
        return []
    found = []
    for name in FullySharded.__struct_fields__:
        if getattr(data.fsdp, name) != getattr(default, name):
            path = f"{FSDP}.{name}"
            fallback = {path: getattr(default, name)}
            found.append(Refusal(path=path, limit=limit, nearest="without it", fallback=fallback))
    if data.shard_group_size is not None:
        path = f"{_DATA}.shard_group_size"
        size = shard_group_size(plan)
        secondary = f"{_ZERO}.secondary_partition_size"
        fallback = {path: None, secondary: size if is_hybrid(plan) and size > 1 else None}
        nearest = f"zero.secondary_partition_size {size}, whose backward pass gathers inside groups"
        found.append(Refusal(path=path, limit=_NO_MICS, nearest=nearest, fallback=fallback))
    return found


_NO_MICS = "DeepSpeed's own hybrid sharding, MiCS, was removed in 0.19"


def refuse_version_one(plan: Plan, limit: str) -> list[Refusal]:
    """Return a refusal of FSDP 1."""
    if plan.recipe.parallelism.data.fsdp.version == 2:
        return []
    path = f"{FSDP}.version"
    fallback = {path: 2, f"{FSDP}.sync_module_states": False}
    return [Refusal(path=path, limit=limit, nearest="version 2", fallback=fallback)]


def refuse_wrap_by_size(plan: Plan, limit: str) -> list[Refusal]:
    """Return a refusal of units chosen by their size."""
    if plan.recipe.parallelism.data.fsdp.wrap != "size":
        return []
    path = f"{FSDP}.wrap"
    fallback = {path: "blocks", f"{FSDP}.wrap_min_parameters": None}
    return [Refusal(path=path, limit=limit, nearest="wrap blocks", fallback=fallback)]


def _step_note(plan: Plan) -> str | None:
    if plan.world.device == "cpu":
        return "on a CPU there is nowhere else to go: only the code path differs"
    return "the optimizer's step runs on the CPU"
