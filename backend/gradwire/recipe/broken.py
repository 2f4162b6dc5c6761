"""What a cross-field rule says when a recipe breaks it, and the sizes that several rules share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gradwire.documents.recipe_schema import Pipeline, Recipe

Device = Literal["cuda", "cpu"]

SINGLE_STAGE_SCHEDULES = ("gpipe", "1f1b")
"""Pipeline schedules in which each rank holds one stage."""

ZERO_BUBBLE_SCHEDULES = ("interleaved-zero-bubble", "zbv")
"""Pipeline schedules that compute gradients of weights apart from those of activations."""

SHARDED = ("zero1", "zero2", "zero3", "fsdp")


@dataclass(frozen=True, kw_only=True, slots=True)
class Broken:
    """Values that contradict each other: their dotted paths, the most telling first, and the way out."""

    paths: tuple[str, ...]
    message: str
    url: str | None = None


def stages_per_rank(pipeline: Pipeline) -> int:
    """Return how many stages each rank of the pipeline holds: what the recipe says, or what its schedule asks."""
    return pipeline.stages_per_rank or (1 if pipeline.schedule in SINGLE_STAGE_SCHEDULES else 2)


def pipeline_ranks(recipe: Recipe) -> int:
    """Return the ranks of one pipeline: 1 without a pipeline, all processes where the recipe names no stages.

    Where stages_per_rank does not divide the stages, the last rank would hold fewer.
    """
    pipeline = recipe.parallelism.pipeline
    if pipeline is None:
        return 1
    return recipe.training.num_gpus if pipeline.stages is None else -(-pipeline.stages // stages_per_rank(pipeline))


def stage_count(recipe: Recipe) -> int:
    """Return the pipeline's stages: 1 without a pipeline, which a pipeline of one rank is none."""
    pipeline, ranks = recipe.parallelism.pipeline, pipeline_ranks(recipe)
    if pipeline is None or ranks == 1:
        return 1
    return pipeline.stages or ranks * stages_per_rank(pipeline)


def data_parallel_size(recipe: Recipe) -> int | None:
    """Return how many ranks (or pipelines) read different data; None where pipelines do not divide the processes."""
    size, rest = divmod(recipe.training.num_gpus, pipeline_ranks(recipe))
    return None if rest else size
