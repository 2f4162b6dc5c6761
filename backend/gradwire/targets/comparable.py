"""Puts what two configurations end up with into one form, in which equal means that the program does the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gradwire.targets.batch import MICRO, STEPS, TRAIN, Batch
from gradwire.targets.deepspeed_effective import default_of
from gradwire.targets.effective import Effective, Reading
from gradwire.targets.equality import same

NEVER = 1_000_000_000
"""Steps between two lines of progress from which on there is none."""

_DATA_TYPES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
}
_DATA_TYPE_KEYS = (
    "torch_autocast.dtype",
    "communication_data_type",
    "seq_parallel_communication_data_type",
    "data_types.grad_accum_dtype",
    "data_types.param_dtype",
    "data_types.buffer_dtype",
)

_WARMUP: dict[str, Any] = {"warmup_num_steps": 1000, "warmup_type": "log", "last_batch_iteration": -1}
_SCHEDULER_DEFAULTS: dict[str, dict[str, Any]] = {
    "WarmupLR": {**_WARMUP, "warmup_min_lr": 0.0},
    "WarmupDecayLR": {**_WARMUP, "warmup_min_lr": 0.0, "warmup_max_lr": 0.001},
    "WarmupCosineLR": {**_WARMUP, "warmup_min_ratio": 0.0, "cos_min_ratio": 0.0001},
}

_DECAY = "optimizer.params.weight_decay"
_SECOND_COPY = "zero_optimization.zero_hpz_partition_size"

Default = Callable[[str, Mapping[str, Effective]], Any]


def at(reading: Reading, path: str) -> Effective:
    """Return the value at a path, DeepSpeed's default where nothing says it."""
    found = reading.values.get(path)
    if found is not None:
        return found
    return Effective(path=path, value=default_of(path, reading.values), origin="default", note="DeepSpeed's default")


def optimizer_kind(reading: Reading) -> str | None:
    """Return Adam, AdamW or SGD for what DeepSpeed builds; its name as written for another, None for none."""
    written = reading.value("optimizer.type")
    if not isinstance(written, str):
        return None
    match written.lower():
        case "adam":
            # DeepSpeed's Adam decays as AdamW does unless it is told not to.
            return "AdamW" if at(reading, "optimizer.params.adam_w_mode").value else "Adam"
        case "adamw":
            return "AdamW"
    return written


def data_type(name: Any) -> str | None:
    """Return bf16, fp16 or fp32 for any of DeepSpeed's spellings."""
    text = str(name).lower()
    return (
        None if name is None else _DATA_TYPES.get(text, "fp32" if text.endswith(("float32", "float", "fp32")) else text)
    )


def _with_scheduler_defaults(values: dict[str, Effective]) -> None:
    """Write out what DeepSpeed's own schedulers take where the file says nothing."""
    kind = values["scheduler.type"].value if "scheduler.type" in values else None
    hidden = dict(_SCHEDULER_DEFAULTS.get(str(kind), {}))
    if kind == "WarmupLR":
        rate = values.get("optimizer.params.lr")
        hidden["warmup_max_lr"] = 0.001 if rate is None else rate.value
    for name, value in hidden.items():
        path = f"scheduler.params.{name}"
        if path not in values:
            values[path] = Effective(path=path, value=value, origin="default", note=f"DeepSpeed's default for {kind}")


def comparable_deepspeed(reading: Reading, batch: Batch | None) -> dict[str, Effective]:
    """Return what DeepSpeed ends up with, one spelling for each thing and, where `batch` is known, its three sizes."""
    values = dict(reading.values)
    kind = optimizer_kind(reading)
    if kind in ("Adam", "AdamW"):
        # What an unwritten decay is depends on adam_w_mode, which has no meaning beside the name that says it.
        values[_DECAY] = at(reading, _DECAY)
        values["optimizer.type"] = replace(values["optimizer.type"], value=kind)
        values.pop("optimizer.params.adam_w_mode", None)
    printed = values.get("steps_per_print")
    if printed is not None and (not isinstance(printed.value, int | float) or printed.value >= NEVER):
        del values["steps_per_print"]
    clip = values.get("gradient_clipping")
    if clip is not None and isinstance(clip.value, int | float) and clip.value < 0:
        # It is taken, and does not clip.
        values["gradient_clipping"] = replace(clip, value=0.0)
    _with_scheduler_defaults(values)
    for path in _DATA_TYPE_KEYS:
        if path in values:
            values[path] = replace(values[path], value=data_type(values[path].value))
    second = values.get(_SECOND_COPY)
    if batch is not None and second is not None and second.value > batch.ranks:
        # A larger group is the whole world: groups._create_zero_param_parallel_group of DeepSpeed 0.19.8.
        values[_SECOND_COPY] = replace(second, value=batch.ranks)
    if batch is not None:
        for path, size in ((TRAIN, batch.train), (MICRO, batch.micro), (STEPS, batch.accumulation)):
            found = values.get(path)
            values[path] = (
                Effective(path=path, value=size, origin="derived", note="worked out of the other batch sizes")
                if found is None
                else replace(found, value=size)
            )
    return values


def differing(
    one: Mapping[str, Effective], other: Mapping[str, Effective], default: Default
) -> dict[str, tuple[Effective, Effective]]:
    """Return the paths at which two configurations end up with different values, sorted, with both values.

    `default` says what the program has at a path that a configuration does not say.
    """
    found: dict[str, tuple[Effective, Effective]] = {}
    for path in sorted({*one, *other}):
        pair = _at(one, path, default), _at(other, path, default)
        if not same(pair[0].value, pair[1].value):
            found[path] = pair
    return found


def _at(values: Mapping[str, Effective], path: str, default: Default) -> Effective:
    found = values.get(path)
    if found is not None:
        return found
    return Effective(path=path, value=default(path, values), origin="default", note="the default")
