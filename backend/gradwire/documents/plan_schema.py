# Generated from the JSON Schemas by `make documents`; never edited.

from __future__ import annotations

from typing import Literal
from msgspec import Struct
from . import recipe_schema


class World(Struct, frozen=True, kw_only=True):
    """The processes of the job."""

    world_size: int
    """Ranks in the job."""
    num_nodes: int
    """Machines in the job; divides world_size."""
    processes_per_node: int
    """Ranks on each machine."""
    device: Literal["cuda", "cpu"]
    """Kind of device each rank runs on."""
    process_group_backend: Literal["nccl", "gloo"]
    """Collective library: nccl on cuda, gloo on cpu."""


class Batch(Struct, frozen=True, kw_only=True):
    """How many sequences and tokens one optimizer step takes."""

    batch_size_per_gpu: int
    """Sequences per rank in one forward pass."""
    gradient_accumulation: int
    """Micro-batches per optimizer step and data-parallel rank."""
    data_parallel_size: int
    """Ranks (or pipelines) that read different data: world_size / stages."""
    global_batch_size: int
    """Sequences per optimizer step over all ranks: the product of the three above."""
    tokens_per_step: int | None
    """global_batch_size x sequence_length; null without a model."""


class SettledPipeline(Struct, frozen=True, kw_only=True):
    """The pipeline with every number known."""

    stages: int
    """Pieces the layers are split into."""
    stages_per_rank: int
    """Stages that each rank of a pipeline holds."""
    ranks: int
    """Ranks of one pipeline: stages / stages_per_rank."""
    layers_per_stage: list[int] | None
    """Transformer blocks of each stage, first to last, so that the costliest stage costs least: the last stage also has the output projection. Null where the user's own script brings the model."""
    chunks: int
    """Micro-batches each batch is cut into."""
    schedule: Literal["gpipe", "1f1b", "interleaved-1f1b", "interleaved-zero-bubble", "zbv"]
    """Order of forward and backward passes."""
    bubble_fraction: float
    """Idle share of the step for equal stages by the schedule's formula, with p ranks, m chunks and v stages per rank; a fraction. gpipe, 1f1b: (p-1)/(m+p-1). interleaved-1f1b: (p-1)/(vm+p-1). interleaved-zero-bubble: (p-1)/(3vm+p-1). zbv: 0."""


class ModelSize(Struct, frozen=True, kw_only=True):
    """Counted from the model's configuration."""

    parameters: int
    """Trainable parameters, shared ones once."""
    embedding_parameters: int
    """Of these, token and position embedding tables that take no part in a matrix product."""
    flops_per_token: int
    """Model FLOPs per token, forward and backward: 6 x (parameters - embedding_parameters) + 12 x layers x hidden_size x sequence_length; attention counted whole (not halved for causality), recomputation not counted."""


class Plan(Struct, frozen=True, kw_only=True):
    """A recipe settled for one backend and one world: every number is known. `gradwire.train` runs it."""

    format_version: Literal[1]
    """Version of this document's format."""
    backend: Literal["native", "accelerate", "deepspeed", "trainer"]
    """Backend that trains: native (plain torch), accelerate, deepspeed, or trainer (transformers' Trainer)."""
    recipe_name: str
    """The preset's name, or the recipe file's name without its suffix."""
    recipe_sha256: str
    """SHA-256 of the resolved recipe, without its summary and its num_gpus, as canonical JSON: equal for runs of one recipe at any size."""
    recipe: recipe_schema.Recipe
    """The resolved recipe: overrides applied, defaults filled in, `extends` and null."""
    world: World
    """The processes of the job."""
    batch: Batch
    """How many sequences and tokens one optimizer step takes."""
    pipeline: SettledPipeline | None
    """The settled pipeline; null: none, or a single stage."""
    model_size: ModelSize | None
    """Counted from the model's configuration; null where the user's own script brings the model."""
