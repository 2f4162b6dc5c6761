"""Turns DeepSpeed's offloading and ZeRO++ and Accelerate's FSDP into recipe keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from gradwire.importing.accelerate_table import accelerate_at
from gradwire.importing.entry import Carried
from gradwire.targets.comparable import at
from gradwire.targets.effective import Effective, Reading

_DATA = "parallelism.data"
_ZERO = "zero_optimization"
_OFFLOADS = (("optimizer", "offload_optimizer"), ("parameters", "offload_param"))

_WRAPS = {"TRANSFORMER_BASED_WRAP": "blocks", "SIZE_BASED_WRAP": "size", "NO_WRAP": "model"}
_STATE_DICTS = {"FULL_STATE_DICT": "full", "SHARDED_STATE_DICT": "sharded"}
_GATHERS_AGAIN = {"FULL_SHARD": True, "HYBRID_SHARD": True, "SHARD_GRAD_OP": False, "HYBRID_SHARD_ZERO2": False}


def carry_zero_sharding(reading: Reading) -> Iterator[Carried]:
    """Yield what DeepSpeed offloads, and ZeRO++."""
    offloaded = [
        (name, f"{_ZERO}.{key}")
        for name, key in _OFFLOADS
        if reading.value(f"{_ZERO}.{key}.device", "none") != "none" and _has_a_place(reading, f"{_ZERO}.{key}")
    ]
    for name, section in offloaded:
        device = at(reading, f"{section}.device")
        yield Carried(path=f"{_DATA}.offload.{name}", value=device.value, sources=(device,))
    if offloaded:
        pins = tuple(at(reading, f"{section}.pin_memory") for _, section in offloaded)
        yield Carried(path=f"{_DATA}.offload.pin_memory", value=pins[0].value, sources=pins)
    folders = tuple(
        at(reading, f"{section}.nvme_path") for _, section in offloaded if reading.value(f"{section}.device") == "nvme"
    )
    if folders:
        yield Carried(path=f"{_DATA}.offload.nvme_path", value=folders[0].value, sources=folders)
    size = reading.values.get(f"{_ZERO}.zero_hpz_partition_size")
    if size is not None and size.value > 1:
        yield Carried(path=f"{_DATA}.zero.secondary_partition_size", value=size.value, sources=(size,))
    for name in ("quantized_weights", "quantized_gradients"):
        found = reading.values.get(f"{_ZERO}.zero_{name}")
        if found is not None and found.value:
            yield Carried(path=f"{_DATA}.zero.{name}", value=True, sources=(found,))


def _has_a_place(reading: Reading, section: str) -> bool:
    """Whether a recipe can say where it offloads to: a relative folder is another one for each start."""
    if reading.value(f"{section}.device") != "nvme":
        return True
    folder = reading.value(f"{section}.nvme_path")
    return isinstance(folder, str) and PurePosixPath(folder).is_absolute()


def carry_fsdp(reading: Reading, *, num_processes: int, num_nodes: int) -> Iterator[Carried]:
    """Yield the settings of an Accelerate file that starts FSDP."""

    def setting(name: str) -> Effective:
        return accelerate_at(reading, f"fsdp_config.fsdp_{name}")

    version = setting("version")
    yield _carried("version", version.value, version)
    if version.value == 1:
        strategy = setting("sharding_strategy")
        yield _carried("reshard_after_forward", _GATHERS_AGAIN.get(str(strategy.value), True), strategy)
        if str(strategy.value).startswith("HYBRID"):
            size = num_processes // num_nodes
            yield Carried(path=f"{_DATA}.shard_group_size", value=size, sources=(strategy,))
        sync = setting("sync_module_states")
        yield _carried("sync_module_states", sync.value, sync)
    else:
        again = setting("reshard_after_forward")
        yield _carried("reshard_after_forward", again.value, again)
        yield from _mesh(reading)
    yield from _wrap(setting("auto_wrap_policy"), setting("min_num_params"), setting("transformer_layer_cls_to_wrap"))
    kept, loading = setting("state_dict_type"), setting("cpu_ram_efficient_loading")
    yield _carried("state_dict", _STATE_DICTS.get(str(kept.value), "full"), kept)
    yield _carried("cpu_ram_efficient_loading", loading.value, loading)
    offload = setting("offload_params")
    for name in ("optimizer", "parameters"):
        device = "cpu" if offload.value else "none"
        yield Carried(path=f"{_DATA}.offload.{name}", value=device, sources=(offload,))
    again = setting("activation_checkpointing")
    note = "the model recomputes its activations itself; the lowered file leaves Accelerate's wrapping off"
    yield Carried(
        path="training.gradient_checkpointing",
        value=again.value,
        sources=(again,),
        note=note if again.value else None,
    )


def _mesh(reading: Reading) -> Iterator[Carried]:
    copies, shards = (
        accelerate_at(reading, f"parallelism_config.parallelism_config_dp_{name}_size")
        for name in ("replicate", "shard")
    )
    if copies.value != 1:
        yield Carried(path=f"{_DATA}.shard_group_size", value=shards.value, sources=(shards, copies))


def _wrap(policy: Effective, minimum: Effective, classes: Effective) -> Iterator[Carried]:
    kind = _WRAPS.get(str(policy.value), "model")
    yield _carried("wrap", kind, policy)
    if kind == "size":
        yield _carried("wrap_min_parameters", minimum.value, minimum)
    if kind == "blocks" and classes.value:
        names = [name.strip() for name in str(classes.value).split(",")]
        yield _carried("block_classes", names, classes)


def _carried(name: str, value: Any, source: Effective) -> Carried:
    return Carried(path=f"{_DATA}.fsdp.{name}", value=value, sources=(source,))
