"""What the real DeepSpeed loaded, in a form in which equal means that it trains the same."""

from __future__ import annotations

from typing import Any

from gradwire.targets.comparable import data_type
from gradwire.targets.deepspeed_activity import idle_reason
from gradwire.targets.effective import Effective
from gradwire.targets.schema import load_schema, spec_at

_SECTIONS = {"zero": "zero_optimization", "fp16": "fp16", "bf16": "bf16"}


def acting(loaded: dict[str, Any], world: int | None) -> dict[str, Any]:
    """Every value that the library loaded and that acts at the stage and in the world, by dotted key of the file."""
    flat: dict[str, Any] = {}
    names = _field_names()
    for part, section in _SECTIONS.items():
        for name, value in _leaves(loaded[part], f"{section}."):
            flat[names.get(name, name)] = value
    flat["data_types.grad_accum_dtype"] = loaded["grad_accum_dtype"]
    stage = flat["zero_optimization.stage"]
    values = {path: Effective(path=path, value=value, origin="written") for path, value in flat.items()}
    found = {
        path: value
        for path, value in flat.items()
        if idle_reason(path, values, stage) is None and "x-inert" not in (spec_at("deepspeed", path) or {})
    }
    if world is not None and "zero_optimization.zero_hpz_partition_size" in found:
        found["zero_optimization.zero_hpz_partition_size"] = min(
            world, found["zero_optimization.zero_hpz_partition_size"]
        )
    for section in ("zero_optimization.offload_param", "zero_optimization.offload_optimizer"):
        # No section is the same as one that offloads to nowhere, or at a stage that does not offload.
        if found.get(section, ...) is None:
            del found[section]
        if found.get(f"{section}.device") in ("none", None):
            found.pop(f"{section}.device", None)
    # Absent, gradients are added up in the model's own type.
    gradients = data_type(found.pop("data_types.grad_accum_dtype", None))
    model = "fp16" if found.get("fp16.enabled") else "bf16" if found.get("bf16.enabled") else "fp32"
    if stage:
        found["data_types.grad_accum_dtype"] = gradients or model
    if not (found.get("fp16.enabled") or loaded["fp16"]["auto_cast"]):
        found.pop("fp16.auto_cast", None)
    # The old names, carried over into the new sections while the file is read.
    old = ("cpu_offload", "cpu_offload_param", "cpu_offload_use_pin_memory", "stage3_gather_fp16_weights_on_model_save")
    for name in old:
        found.pop(f"zero_optimization.{name}", None)
    rest = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
    others = ("prescale_gradients", "gradient_predivide_factor", "zero_force_ds_cpu_optimizer", "torch_autocast")
    return {
        **found,
        **{name: loaded[name] for name in (*rest, *others)},
        "communication_data_type": _travels_as(loaded, found),
        **_optimizer(loaded),
        "scheduler": loaded["scheduler"],
        "scheduler_params": _schedule(loaded),
    }


def _travels_as(loaded: dict[str, Any], found: dict[str, Any]) -> str:
    written = loaded["communication_data_type"]
    model = "float16" if found.get("fp16.enabled") else "bfloat16" if found.get("bf16.enabled") else "float32"
    return str(written).removeprefix("torch.") if written is not None else model


def _optimizer(loaded: dict[str, Any]) -> dict[str, Any]:
    name, params = loaded["optimizer"], dict(loaded["optimizer_params"] or {})
    if name not in ("adam", "adamw"):
        return {"optimizer": name, "params": params}
    # DeepSpeed's engine: Adam decays as AdamW does unless adam_w_mode is false.
    decoupled = name == "adamw" or params.get("adam_w_mode", True)
    params.pop("adam_w_mode", None)
    decay = 0.01 if decoupled and params.get("torch_adam") else 0.0
    defaults = {"lr": 1e-3, "weight_decay": decay, "betas": [0.9, 0.999], "eps": 1e-8, "torch_adam": False}
    return {"optimizer": "AdamW" if decoupled else "Adam", "params": {**defaults, **params}}


def _schedule(loaded: dict[str, Any]) -> dict[str, Any]:
    """The scheduler's arguments with the defaults of its constructor, deepspeed.runtime.lr_schedules 0.19.8."""
    common = {"warmup_num_steps": 1000, "warmup_type": "log", "last_batch_iteration": -1}
    lr = (loaded["optimizer_params"] or {}).get("lr", 1e-3)
    own = {
        "WarmupLR": {**common, "warmup_min_lr": 0.0, "warmup_max_lr": lr},
        "WarmupDecayLR": {**common, "warmup_min_lr": 0.0, "warmup_max_lr": 0.001},
        "WarmupCosineLR": {**common, "warmup_min_ratio": 0.0, "cos_min_ratio": 0.0001},
    }
    params = {**own.get(loaded["scheduler"], {}), **(loaded["scheduler_params"] or {})}
    if loaded["scheduler"] in own and params["warmup_type"] not in ("log", "linear"):
        params["warmup_type"] = "log"
    return params


def _field_names() -> dict[str, str]:
    properties = load_schema("deepspeed")["$defs"]["ZeroOptimization"]["properties"]
    return {
        f"zero_optimization.{spec['x-field']}": f"zero_optimization.{name}"
        for name, spec in properties.items()
        if "x-field" in spec
    }


def _leaves(section: dict[str, Any], prefix: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in section.items():
        if isinstance(value, dict) and value:
            found += _leaves(value, f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", value))
    return found
