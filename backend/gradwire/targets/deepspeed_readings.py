"""Readings of a DeepSpeed file that several rules share."""

from __future__ import annotations

from typing import Any

from gradwire.targets.schema import spec_at
from gradwire.targets.tree import Document
from gradwire.targets.values import pydantic_misfit

DEEPSPEED_CONFIG_URL = "https://www.deepspeed.ai/docs/config-json/"


def zero_stage(document: Document) -> int:
    """The ZeRO stage that DeepSpeed runs at; 0 where the file does not say or says something it refuses."""
    section = document.value("zero_optimization")
    if isinstance(section, bool):
        return int(section)
    value = document.value("zero_optimization.stage", 0)
    if value in ("auto", None):
        return 0
    spec = spec_at("deepspeed", "zero_optimization.stage") or {}
    misfit = pydantic_misfit(spec, value)
    if misfit is None:
        return int(value)
    return int(misfit.becomes) if misfit.outcome == "replaced" else 0


def offload_device(document: Document, section: str) -> str:
    """Where a ZeRO section offloads to: none, cpu or nvme."""
    old = {"offload_optimizer": "cpu_offload", "offload_param": "cpu_offload_param"}[section]
    if document.value(f"zero_optimization.{old}") is True:
        return "cpu"
    device = document.value(f"zero_optimization.{section}.device", "none")
    return device if device in ("cpu", "nvme") else "none"


def is_on(document: Document, path: str) -> bool:
    """Whether a switch is on, text included; "auto" and absent are not."""
    value = document.value(path)
    return (
        value is True
        or value == 1
        or (isinstance(value, str) and value.lower() in ("true", "1", "yes", "on", "y", "t"))
    )


def is_off(document: Document, path: str) -> bool:
    """Whether a switch is written and off, text included; "auto" and absent are not."""
    value = document.value(path)
    return (
        value is False
        or value == 0
        or (isinstance(value, str) and value.lower() in ("false", "0", "no", "off", "n", "f"))
    )


def precision_section(document: Document) -> str:
    """Name of the section that DeepSpeed reads bf16 from: the old name counts only where the new one is absent."""
    return "bfloat16" if document.has("bfloat16") and document.value("bf16") is None else "bf16"


def uses_bf16_optimizer(document: Document) -> bool:
    """Whether stage 1 is run by BF16_Optimizer: bf16, gradients accumulated in fp32, and nothing offloaded.

    Source: DeepSpeedEngine._do_optimizer_sanity_check of DeepSpeed 0.19.8.
    """
    gradients = str(document.value("data_types.grad_accum_dtype")).removeprefix("torch.")
    return (
        zero_stage(document) == 1
        and is_on(document, f"{precision_section(document)}.enabled")
        and gradients in ("fp32", "float32", "float")
        and offload_device(document, "offload_optimizer") == "none"
    )


def number(value: Any) -> float | None:
    """A real number, or None for anything else, booleans and "auto" among it."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def whole(value: Any) -> int | None:
    """A whole number, written as 8 or 8.0, or None."""
    real = number(value)
    return int(real) if real is not None and real == real and abs(real) < 1e18 and real == int(real) else None
