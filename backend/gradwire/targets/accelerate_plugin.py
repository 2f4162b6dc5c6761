"""The DeepSpeed configuration that Accelerate makes of its own file, where that names no DeepSpeed JSON."""

from __future__ import annotations

from typing import Any

from gradwire.targets.effective import Effective, Origin, Reading

# Key of deepspeed_config -> key of DeepSpeed, and what accelerate.DeepSpeedPlugin 1.15.0 takes where it is not written.
_PASSED_ON: tuple[tuple[str, str, Any], ...] = (
    ("zero_stage", "zero_optimization.stage", 2),
    ("offload_optimizer_device", "zero_optimization.offload_optimizer.device", "none"),
    ("offload_param_device", "zero_optimization.offload_param.device", "none"),
    ("zero3_save_16bit_model", "zero_optimization.stage3_gather_16bit_weights_on_model_save", False),
    ("gradient_accumulation_steps", "gradient_accumulation_steps", "auto"),
    ("gradient_clipping", "gradient_clipping", "auto"),
)


def plugin_reading(accelerate: Reading) -> Reading:
    """Return what DeepSpeed gets from the `deepspeed_config` section of an Accelerate file and its mixed_precision."""
    values: dict[str, Effective] = {}
    for name, path, default in _PASSED_ON:
        written = accelerate.values.get(f"deepspeed_config.{name}")
        value = default if written is None else written.value
        origin: Origin = "default" if written is None else written.origin
        note = None if written is not None else f"Accelerate's default for {name}"
        if name == "gradient_accumulation_steps" and value == "auto":
            value, origin, note = 1, "assumed", "Accelerate takes that of Accelerator()"
        if name == "gradient_clipping" and value == "auto":
            value, note = 1.0, "Accelerate's prepare() writes 1.0"
        if name == "gradient_clipping" and value == 0:
            value, note = 1.0, "Accelerate leaves a 0 out, and DeepSpeed clips at its default"
        document, member = (None, None) if written is None else (written.document, written.member)
        values[path] = Effective(path=path, value=value, origin=origin, document=document, member=member, note=note)
        if value == "nvme":
            path = path.replace(".device", ".nvme_path")
            values[path] = Effective(path=path, value="none", origin="filled", note="Accelerate does not pass it on")
    _add_precision(values, accelerate)
    micro = "train_micro_batch_size_per_gpu"
    note = "Accelerate takes the batch size of the loader given to prepare()"
    values[micro] = Effective(path=micro, value=1, origin="assumed", note=note)
    return Reading(values=values)


def _add_precision(values: dict[str, Effective], accelerate: Reading) -> None:
    written = accelerate.values.get("mixed_precision")
    wanted = "no" if written is None else written.value
    section = {"fp16": "fp16", "bf16": "bf16", "fp8": "bf16"}.get(wanted)
    if section is None or written is None:
        return
    names = ("enabled", "auto_cast") if section == "fp16" else ("enabled",)
    for name in names:
        path = f"{section}.{name}"
        values[path] = Effective(
            path=path,
            value=True,
            origin=written.origin,
            document=written.document,
            member=written.member,
            note=f"mixed_precision {wanted}",
        )
