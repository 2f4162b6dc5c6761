"""Rules of the number formats in which gradients are kept and travel, and of the labels that count."""

from __future__ import annotations

from gradwire.documents.recipe_schema import Recipe
from gradwire.recipe.broken import Broken

_DTYPE = "communication.dtype"
_METHOD = "communication.compression.method"
_ACCUMULATION = "training.gradient_accumulation_dtype"


def compression_decides_what_travels(recipe: Recipe) -> Broken | None:
    """A compression method has a number format of its own."""
    communication = recipe.communication
    if communication.dtype is None or communication.compression.method == "none":
        return None
    return Broken(
        paths=(_DTYPE, _METHOD),
        message=f"dtype would be ignored: compression.method {communication.compression.method} decides what travels; "
        "remove one of the two",
    )


def fp16_range_needs_scaled_gradients(recipe: Recipe) -> Broken | None:
    """bf16 gradients reach far beyond fp16's 65,504."""
    if recipe.communication.dtype != "fp16" or not recipe.training.precision.startswith("bf16"):
        return None
    return Broken(
        paths=(_DTYPE, "training.precision"),
        message=f"gradients of precision {recipe.training.precision} can exceed fp16's largest number, 65504, and "
        "small ones vanish; use dtype bf16 or fp32",
    )


def accumulation_is_not_narrower(recipe: Recipe) -> Broken | None:
    """Adding fp32 gradients up in bf16, or fp16 ones in bf16, only loses digits."""
    training = recipe.training
    if training.gradient_accumulation_dtype != "bf16" or training.precision.startswith("bf16"):
        return None
    return Broken(
        paths=(_ACCUMULATION, "training.precision"),
        message=f"gradients of precision {training.precision} would lose digits in bf16; "
        "remove gradient_accumulation_dtype, or use fp32",
    )


def labels_fit_the_sequence(recipe: Recipe) -> Broken | None:
    """A sequence has no more labels than tokens."""
    model, fewest = recipe.model, recipe.data.min_labels
    if model is None or fewest is None or fewest <= model.sequence_length:
        return None
    return Broken(
        paths=("data.min_labels", "model.sequence_length"),
        message=f"{fewest} labels do not fit a sequence of {model.sequence_length} tokens; "
        f"use at most {model.sequence_length}",
    )
