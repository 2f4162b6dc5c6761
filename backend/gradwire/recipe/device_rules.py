"""Rules that hold on one kind of device only, checked once the device is known."""

from __future__ import annotations

import math

from gradwire.documents.recipe_schema import Recipe
from gradwire.recipe.broken import Broken, Device
from gradwire.recipe.model_shapes import parameter_count
from gradwire.recipe.torch_buckets import TORCH_FIRST_BUCKET_MIB

_MEBIBYTE = 1024 * 1024


def fp16_needs_a_gpu(recipe: Recipe, device: Device) -> Broken | None:
    """fp16 with a loss scale is not trained on CPUs: DeepSpeed refuses it, torch has no kernels worth it."""
    if device != "cpu" or recipe.training.precision != "fp16-mixed":
        return None
    return Broken(
        paths=("training.precision", "training.device"),
        message="fp16-mixed does not train on cpu; use bf16-mixed or fp32",
    )


def torchs_powersgd_on_gloo_has_one_bucket(recipe: Recipe, device: Device) -> Broken | None:
    """torch's hook starts collectives from callbacks: over gloo, two buckets' come in any order, and it hangs."""
    if device != "cpu" or recipe.communication.compression.method != "powersgd-torch" or recipe.model is None:
        return None
    gradient_bytes = parameter_count(recipe.model) * (2 if recipe.training.precision == "bf16-true" else 4)
    overlap = recipe.communication.overlap
    asked, first = overlap.bucket_cap_mb, overlap.first_bucket_mb
    if asked != "auto":
        first = first or (TORCH_FIRST_BUCKET_MIB if asked is None else asked)
        if gradient_bytes <= first * _MEBIBYTE:
            return None
    has = "absent (a first bucket of 1 MiB)" if asked is None else f"{asked}" if asked == "auto" else f"{asked:g}"
    if overlap.first_bucket_mb is not None:
        has += f", first_bucket_mb {overlap.first_bucket_mb:g}"
    return Broken(
        paths=("communication.overlap.bucket_cap_mb", "communication.compression.method", "training.device"),
        message=f"torch's PowerSGD hook hangs on cpu with more than one bucket: the model's gradients are "
        f"{gradient_bytes / _MEBIBYTE:.2f} MiB and bucket_cap_mb is {has}; "
        f"use method powersgd, or bucket_cap_mb {math.ceil(gradient_bytes / _MEBIBYTE)} or more"
        f"{' and no first_bucket_mb' if overlap.first_bucket_mb is not None else ''}",
    )


def torchs_powersgd_on_gloo_uses_every_parameter(recipe: Recipe, device: Device) -> Broken | None:
    """The search for unused parameters adds a collective that the hook's callbacks race with."""
    communication = recipe.communication
    if device != "cpu" or communication.compression.method != "powersgd-torch":
        return None
    if not communication.overlap.find_unused_parameters:
        return None
    return Broken(
        paths=(
            "communication.overlap.find_unused_parameters",
            "communication.compression.method",
            "training.device",
        ),
        message="torch's PowerSGD hook hangs on cpu with find_unused_parameters; "
        "use method powersgd, or set it to false",
    )


def pinned_memory_is_for_a_gpu(recipe: Recipe, device: Device) -> Broken | None:
    """Memory is page-locked for the copies of a GPU; torch's offload policy fails without one."""
    if device != "cpu" or not recipe.parallelism.data.offload.pin_memory:
        return None
    return Broken(
        paths=("parallelism.data.offload.pin_memory", "training.device"),
        message="pin_memory needs a GPU, and the device is cpu; set it to false, or remove it",
    )


def fp8_needs_a_gpu(recipe: Recipe, device: Device) -> Broken | None:
    """No CPU has matrix products in 8-bit floats."""
    if device != "cpu" or recipe.training.fp8 == "none":
        return None
    return Broken(paths=("training.fp8", "training.device"), message="fp8 needs a GPU, and the device is cpu; use none")
