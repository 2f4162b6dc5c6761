"""Rules of sharding: groups of ranks, offloading, ZeRO++, and how fully sharded data parallelism is set up."""

from __future__ import annotations

from pathlib import PurePosixPath

from gradwire.documents.recipe_schema import FullySharded, Recipe, ZeroPlusPlus
from gradwire.recipe.broken import SHARDED, Broken, data_parallel_size, stage_count

_DATA = "parallelism.data"
_STRATEGY = f"{_DATA}.strategy"
_GROUP = f"{_DATA}.shard_group_size"
_OFFLOAD = f"{_DATA}.offload"
_ZERO = f"{_DATA}.zero"
_FSDP = f"{_DATA}.fsdp"


def shard_groups_are_fsdps(recipe: Recipe) -> Broken | None:
    """Hybrid sharding is a mesh of fully_shard; DeepSpeed's own, MiCS, was removed in 0.19."""
    data = recipe.parallelism.data
    if data.shard_group_size is None or data.strategy == "fsdp":
        return None
    way_out = (
        "use strategy fsdp, or zero.secondary_partition_size, with which the backward pass gathers inside groups"
        if data.strategy == "zero3"
        else "use strategy fsdp, or remove it"
    )
    return Broken(
        paths=(_GROUP, _STRATEGY),
        message=f"shard_group_size would be ignored: the strategy is {data.strategy}; {way_out}",
        url="https://github.com/deepspeedai/DeepSpeed/issues/8489" if data.strategy == "zero3" else None,
    )


def shard_groups_divide_the_ranks(recipe: Recipe) -> Broken | None:
    """Every group holds one whole copy of the model."""
    size, ranks = recipe.parallelism.data.shard_group_size, data_parallel_size(recipe)
    if size is None or ranks is None or size >= ranks or ranks % size == 0:
        return None
    fitting = [str(count) for count in range(1, ranks + 1) if ranks % count == 0]
    return Broken(
        paths=(_GROUP, "training.num_gpus"),
        message=f"groups of {size} ranks do not divide {ranks} data-parallel ranks; use {', '.join(fitting)}",
    )


def shard_groups_have_no_pipeline(recipe: Recipe) -> Broken | None:
    """A pipeline's stages are sharded over all of their data-parallel ranks."""
    if recipe.parallelism.data.shard_group_size is None or stage_count(recipe) == 1:
        return None
    return Broken(
        paths=(_GROUP, "parallelism.pipeline.chunks"),
        message=f"shard_group_size does not combine with a pipeline of {stage_count(recipe)} stages; "
        "use parallelism.pipeline null, or remove it",
    )


def offloading_needs_shards(recipe: Recipe) -> Broken | None:
    """DeepSpeed offloads nothing without ZeRO and no parameters below stage 3, and says neither."""
    data = recipe.parallelism.data
    ignored = []
    if data.offload.optimizer != "none" and data.strategy not in SHARDED:
        ignored.append("optimizer")
    if data.offload.parameters != "none" and data.strategy not in ("zero3", "fsdp"):
        ignored.append("parameters")
    if not ignored:
        return None
    able = "zero3 or fsdp" if "parameters" in ignored else "zero1, zero2, zero3 or fsdp"
    return Broken(
        paths=(*(f"{_OFFLOAD}.{name}" for name in ignored), _STRATEGY),
        message=f"nothing would be offloaded: {' and '.join(ignored)} can leave the device under {able}, and the "
        f"strategy is {data.strategy}; use one of those, or none",
        url="https://github.com/wenet-e2e/wenet/pull/2499",
    )


def fsdp_offloads_everything(recipe: Recipe) -> Broken | None:
    """torch's offload policy moves parameters, gradients and the optimizer's state and step together."""
    data = recipe.parallelism.data
    offload = data.offload
    if data.strategy != "fsdp" or offload.optimizer == offload.parameters:
        return None
    return Broken(
        paths=(f"{_OFFLOAD}.optimizer", f"{_OFFLOAD}.parameters", _STRATEGY),
        message=f"fsdp offloads parameters and optimizer together, but optimizer is {offload.optimizer} and parameters "
        f"is {offload.parameters}; set both to cpu or both to none, or use strategy zero3",
    )


def nvme_is_stage_threes(recipe: Recipe) -> Broken | None:
    """Only ZeRO 3 swaps to disk."""
    data = recipe.parallelism.data
    asked = [name for name in ("optimizer", "parameters") if getattr(data.offload, name) == "nvme"]
    if not asked or data.strategy == "zero3":
        return None
    return Broken(
        paths=(*(f"{_OFFLOAD}.{name}" for name in asked), _STRATEGY),
        message=f"nvme works under zero3 only, and the strategy is {data.strategy}; use cpu, or strategy zero3",
    )


def nvme_has_a_folder(recipe: Recipe) -> Broken | None:
    """DeepSpeed finds out that there is no path when it starts; a relative one depends on where it starts."""
    offload = recipe.parallelism.data.offload
    asked = [name for name in ("optimizer", "parameters") if getattr(offload, name) == "nvme"]
    path = f"{_OFFLOAD}.nvme_path"
    if asked and offload.nvme_path is None:
        return Broken(
            paths=(*(f"{_OFFLOAD}.{name}" for name in asked), path),
            message="nvme needs nvme_path, a folder on a local disk of every machine, such as /local_nvme",
        )
    if offload.nvme_path is not None and not asked:
        return Broken(
            paths=(path, f"{_OFFLOAD}.optimizer", f"{_OFFLOAD}.parameters"),
            message="nvme_path would be ignored: nothing is offloaded to nvme; "
            "set optimizer or parameters to nvme, or remove it",
        )
    if offload.nvme_path is not None and not PurePosixPath(offload.nvme_path).is_absolute():
        return Broken(
            paths=(path,),
            message=f"{offload.nvme_path!r} is a relative path, which is another folder for each start; "
            "write it from the root, such as /local_nvme",
        )
    return None


def pinning_is_read(recipe: Recipe) -> Broken | None:
    """Page-locked memory belongs to offloading."""
    data = recipe.parallelism.data
    if data.offload.pin_memory is None or (data.offload.optimizer, data.offload.parameters) != ("none", "none"):
        return None
    return Broken(
        paths=(f"{_OFFLOAD}.pin_memory", f"{_OFFLOAD}.optimizer", f"{_OFFLOAD}.parameters"),
        message="pin_memory would be ignored: nothing is offloaded; set optimizer or parameters, or remove it",
    )


def offloading_has_no_pipeline(recipe: Recipe) -> Broken | None:
    """Stages are small already, and their schedule waits for no copy."""
    offload = recipe.parallelism.data.offload
    if (offload.optimizer, offload.parameters) == ("none", "none") or stage_count(recipe) == 1:
        return None
    return Broken(
        paths=(f"{_OFFLOAD}.optimizer", f"{_OFFLOAD}.parameters", "parallelism.pipeline.chunks"),
        message=f"offloading does not combine with a pipeline of {stage_count(recipe)} stages; "
        "use none, or parallelism.pipeline null",
    )


def zero_plus_plus_is_stage_threes(recipe: Recipe) -> Broken | None:
    """At other stages DeepSpeed takes these keys and does nothing."""
    data, default = recipe.parallelism.data, ZeroPlusPlus()
    given = [name for name in ZeroPlusPlus.__struct_fields__ if getattr(data.zero, name) != getattr(default, name)]
    if not given or data.strategy == "zero3":
        return None
    return Broken(
        paths=(*(f"{_ZERO}.{name}" for name in given), _STRATEGY),
        message=f"{' and '.join(given)} would be ignored: ZeRO++ is part of zero3, and the strategy is "
        f"{data.strategy}; remove {'it' if len(given) == 1 else 'them'}, or use strategy zero3",
    )


def secondary_partitions_divide_the_ranks(recipe: Recipe) -> Broken | None:
    """DeepSpeed takes 3 on 2 ranks without a word."""
    size, ranks = recipe.parallelism.data.zero.secondary_partition_size, recipe.training.num_gpus
    if size is None or size >= ranks or ranks % size == 0:
        return None
    fitting = [str(count) for count in range(2, ranks + 1) if ranks % count == 0]
    return Broken(
        paths=(f"{_ZERO}.secondary_partition_size", "training.num_gpus"),
        message=f"partitions of {size} ranks do not divide {ranks} processes; use {', '.join(fitting)}",
    )


def fsdp_settings_are_read(recipe: Recipe) -> Broken | None:
    """The settings of fully sharded data parallelism mean nothing elsewhere."""
    data, default = recipe.parallelism.data, FullySharded()
    given = [name for name in FullySharded.__struct_fields__ if getattr(data.fsdp, name) != getattr(default, name)]
    if not given or data.strategy == "fsdp":
        return None
    return Broken(
        paths=(*(f"{_FSDP}.{name}" for name in given), _STRATEGY),
        message=f"{' and '.join(given)} would be ignored: the strategy is {data.strategy}; "
        f"remove {'it' if len(given) == 1 else 'them'}, or use strategy fsdp",
    )


def wrapping_says_what_is_wrapped(recipe: Recipe) -> Broken | None:
    """Each way of cutting a model into units reads its own setting."""
    fsdp = recipe.parallelism.data.fsdp
    minimum, classes = f"{_FSDP}.wrap_min_parameters", f"{_FSDP}.block_classes"
    if fsdp.wrap == "size" and fsdp.wrap_min_parameters is None:
        return Broken(
            paths=(f"{_FSDP}.wrap", minimum),
            message="wrap size needs wrap_min_parameters: the parameters that make a module a unit, such as 100000000",
        )
    if fsdp.wrap != "size" and fsdp.wrap_min_parameters is not None:
        return Broken(
            paths=(minimum, f"{_FSDP}.wrap"),
            message=f"wrap_min_parameters would be ignored: wrap is {fsdp.wrap}; remove it, or use wrap size",
        )
    if fsdp.block_classes is None or (fsdp.wrap == "blocks" and recipe.model is None):
        return None
    why = f"wrap is {fsdp.wrap}" if fsdp.wrap != "blocks" else "the recipe's own model says what its blocks are"
    return Broken(
        paths=(classes, f"{_FSDP}.wrap", "model.family"),
        message=f"block_classes would be ignored: {why}; remove it",
    )


def weights_are_sent_by_version_one(recipe: Recipe) -> Broken | None:
    """FSDP 2 shares out what rank 0 loaded by itself; FSDP 1 has to be told."""
    fsdp = recipe.parallelism.data.fsdp
    sync, loading = f"{_FSDP}.sync_module_states", f"{_FSDP}.cpu_ram_efficient_loading"
    if fsdp.version == 2 and fsdp.sync_module_states:
        return Broken(
            paths=(sync, f"{_FSDP}.version"),
            message="sync_module_states would be ignored: FSDP 2 has no such setting; remove it",
        )
    if fsdp.version == 1 and fsdp.cpu_ram_efficient_loading and not fsdp.sync_module_states:
        return Broken(
            paths=(loading, sync, f"{_FSDP}.version"),
            message="cpu_ram_efficient_loading leaves every rank but the first without weights; "
            "FSDP 1 needs sync_module_states true to send them",
        )
    return None


SHARDING_RULES = (
    shard_groups_are_fsdps,
    shard_groups_divide_the_ranks,
    shard_groups_have_no_pipeline,
    offloading_needs_shards,
    fsdp_offloads_everything,
    nvme_is_stage_threes,
    nvme_has_a_folder,
    pinning_is_read,
    offloading_has_no_pipeline,
    zero_plus_plus_is_stage_threes,
    secondary_partitions_divide_the_ranks,
    fsdp_settings_are_read,
    wrapping_says_what_is_wrapped,
    weights_are_sent_by_version_one,
)
"""What recipe/rules.py adds to its table."""
