"""What a cross-field rule says when a recipe breaks it, and the sizes that several rules share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gradwire.documents.recipe_schema import Recipe

Device = Literal["cuda", "cpu"]

SHARDED = ("zero1", "zero2", "zero3", "fsdp")


@dataclass(frozen=True, kw_only=True, slots=True)
class Broken:
    """Values that contradict each other: their dotted paths, the most telling first, and the way out."""

    paths: tuple[str, ...]
    message: str
    url: str | None = None


def stage_count(recipe: Recipe) -> int:
    """Return the pipeline's stages: 1 without a pipeline, one per process where the recipe leaves them out."""
    pipeline = recipe.parallelism.pipeline
    if pipeline is None:
        return 1
    return pipeline.stages or recipe.training.num_gpus


def data_parallel_size(recipe: Recipe) -> int | None:
    """Return how many ranks (or pipelines) read different data; None where the stages do not divide the processes."""
    size, rest = divmod(recipe.training.num_gpus, stage_count(recipe))
    return None if rest else size
