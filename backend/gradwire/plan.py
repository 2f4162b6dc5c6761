"""Settles a recipe for one backend and one world: (recipe, world) -> Plan, every number known, nothing rounded."""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec
from msgspec.structs import replace

from gradwire.documents.plan_schema import Batch, ModelSize, Plan, SettledPipeline, World
from gradwire.documents.recipe_schema import Model, Recipe
from gradwire.errors import UsageError
from gradwire.recipe.broken import pipeline_ranks, stage_count, stages_per_rank
from gradwire.recipe.model_flops import model_flops_per_token
from gradwire.recipe.model_shapes import layers_per_stage, parameter_count

Backend = Literal["native", "accelerate", "deepspeed", "trainer"]
Device = Literal["cuda", "cpu"]

BACKENDS: tuple[Backend, ...] = ("native", "accelerate", "deepspeed", "trainer")


def settle(recipe: Recipe, *, recipe_name: str, backend: Backend, device: Device, num_nodes: int = 1) -> Plan:
    """Return the plan of `recipe` (resolved and valid) on `backend`, over `recipe.training.num_gpus` processes.

    `device` is what the processes run on; `recipe.training.device`, where given, must agree.
    Raises UsageError where two numbers contradict each other; the text has both.
    """
    if recipe.training.device not in (None, device):
        raise UsageError(f"training.device is {recipe.training.device}, but the plan is for {device}")
    world = _settle_world(recipe.training.num_gpus, num_nodes, device)
    pipeline = _settle_pipeline(recipe, world.world_size)
    return Plan(
        format_version=1,
        backend=backend,
        recipe_name=recipe_name,
        recipe_sha256=recipe_sha256(recipe),
        recipe=replace(recipe, extends=None),
        world=world,
        batch=_settle_batch(recipe, world.world_size, pipeline.ranks if pipeline else 1),
        pipeline=pipeline,
        model_size=model_size(recipe.model) if recipe.model else None,
    )


def check_plan(plan: Plan) -> None:
    """Raise UsageError when `plan`, read from a file, is not what its own recipe settles to: it was edited by hand."""
    again = settle(
        plan.recipe,
        recipe_name=plan.recipe_name,
        backend=plan.backend,
        device=plan.world.device,
        num_nodes=plan.world.num_nodes,
    )
    if again == plan:
        return
    differing = [name for name in Plan.__struct_fields__ if getattr(again, name) != getattr(plan, name)]
    raise UsageError(
        f"the plan contradicts its own recipe in {', '.join(differing)}; a plan is generated, not edited: "
        "change the recipe and lower it again"
    )


def shard_group_size(plan: Plan) -> int:
    """Return how many ranks share one copy of the model under `fsdp`; fewer than all data-parallel ranks: hybrid."""
    ranks = plan.batch.data_parallel_size
    return min(plan.recipe.parallelism.data.shard_group_size or ranks, ranks)


def secondary_partition_size(plan: Plan) -> int:
    """Return the ranks over which ZeRO++ shards its second copy of the parameters; 1: there is none."""
    return min(plan.recipe.parallelism.data.zero.secondary_partition_size or 1, plan.world.world_size)


def pins_memory(plan: Plan) -> bool:
    """Return whether offloading uses page-locked memory: as the recipe says, or else where there is a GPU."""
    asked = plan.recipe.parallelism.data.offload.pin_memory
    return plan.world.device == "cuda" if asked is None else asked


def not_on_cpu(plan: Plan) -> str | None:
    """Return why the plan cannot train on the CPU that it is for, with a way out; None where it can.

    Tried with DeepSpeed 0.19: NVMe offload waits for ever, the kernels of qwZ do not exist, and qgZ sends full
    gradients without a word.
    """
    if plan.world.device != "cpu":
        return None
    data = plan.recipe.parallelism.data
    if "nvme" in (data.offload.optimizer, data.offload.parameters):
        return "parallelism.data.offload: nvme needs a CUDA device; on cpu use cpu or none"
    if data.zero.quantized_weights or data.zero.quantized_gradients:
        return (
            "parallelism.data.zero: DeepSpeed quantizes weights and gradients on CUDA devices only; "
            "on cpu set quantized_weights and quantized_gradients to false"
        )
    return None


def recipe_sha256(recipe: Recipe) -> str:
    """Return a hash that is equal for runs of one recipe at any size.

    Summary, extends, num_gpus and the trackers are left out.
    """
    document = msgspec.to_builtins(recipe)
    for key in ("extends", "summary"):
        del document[key]
    del document["training"]["num_gpus"], document["measurement"]["trackers"]
    canonical = msgspec.json.encode(document, order="sorted")
    return hashlib.sha256(canonical).hexdigest()


def model_size(model: Model) -> ModelSize:
    """Return the parameter count and FLOPs per token of `model`.

    FLOPs per token are those of `model_flops_per_token`, not halved for causality, embedding tables left out.
    """
    parameters = parameter_count(model)
    position_table = model.sequence_length * model.hidden_size if model.family == "gpt2" else 0
    token_table = model.vocab_size * model.hidden_size
    # A tied table takes part in the output product, so it is not an embedding only.
    embedding_parameters = position_table + (0 if model.tie_embeddings else token_table)
    return ModelSize(
        parameters=parameters,
        embedding_parameters=embedding_parameters,
        flops_per_token=model_flops_per_token(
            parameters,
            layers=model.layers,
            hidden_size=model.hidden_size,
            sequence_length=model.sequence_length,
            embedding_parameters=embedding_parameters,
        ),
    )


def bubble_fraction(ranks: int, chunks: int, *, schedule: str = "1f1b", stages_per_rank: int = 1) -> float:
    """Return the idle share of a step for equal stages, a fraction, with p ranks, m chunks and v stages per rank.

    gpipe and 1f1b: (p-1)/(m+p-1) (GPipe, arXiv:1811.06965). interleaved-1f1b: (p-1)/(vm+p-1) (Megatron-LM,
    arXiv:2104.04473, 2.2). interleaved-zero-bubble: a third of that idle time, (p-1)/(3vm+p-1), and zbv: none, where a
    forward pass, the gradients of activations and those of weights take equally long (arXiv:2401.10241).
    """
    match schedule:
        case "zbv":
            return 0.0
        case "interleaved-zero-bubble":
            return (ranks - 1) / (3 * stages_per_rank * chunks + ranks - 1)
        case _:
            return (ranks - 1) / (stages_per_rank * chunks + ranks - 1)


def _settle_world(world_size: int, num_nodes: int, device: Device) -> World:
    below, rest = divmod(world_size, num_nodes)
    if rest:
        sizes = " or ".join(str(count * num_nodes) for count in (below, below + 1) if count)
        raise UsageError(
            f"{world_size} processes do not split evenly over {num_nodes} nodes; nearest num_gpus: {sizes}"
        )
    return World(
        world_size=world_size,
        num_nodes=num_nodes,
        processes_per_node=world_size // num_nodes,
        device=device,
        process_group_backend="nccl" if device == "cuda" else "gloo",
    )


def _settle_pipeline(recipe: Recipe, world_size: int) -> SettledPipeline | None:
    asked = recipe.parallelism.pipeline
    if asked is None:
        return None
    each, ranks, stages = stages_per_rank(asked), pipeline_ranks(recipe), stage_count(recipe)
    if stages == 1:
        return None
    if world_size % ranks or stages != ranks * each:
        raise UsageError(
            f"parallelism.pipeline.stages: {stages} stages, {each} on each rank, do not divide {world_size} processes"
        )
    return SettledPipeline(
        stages=stages,
        stages_per_rank=each,
        ranks=ranks,
        layers_per_stage=layers_per_stage(recipe.model, stages) if recipe.model else None,
        chunks=asked.chunks,
        schedule=asked.schedule,
        bubble_fraction=bubble_fraction(ranks, asked.chunks, schedule=asked.schedule, stages_per_rank=each),
    )


def _settle_batch(recipe: Recipe, world_size: int, ranks_per_pipeline: int) -> Batch:
    training = recipe.training
    data_parallel_size = world_size // ranks_per_pipeline
    global_batch_size = training.batch_size_per_gpu * training.gradient_accumulation * data_parallel_size
    if training.global_batch_size not in (None, global_batch_size):
        raise UsageError(
            f"training.global_batch_size is {training.global_batch_size}, but {training.batch_size_per_gpu} x "
            f"{training.gradient_accumulation} x {data_parallel_size} data-parallel ranks is {global_batch_size}"
        )
    return Batch(
        batch_size_per_gpu=training.batch_size_per_gpu,
        gradient_accumulation=training.gradient_accumulation,
        data_parallel_size=data_parallel_size,
        global_batch_size=global_batch_size,
        tokens_per_step=global_batch_size * recipe.model.sequence_length if recipe.model else None,
    )
