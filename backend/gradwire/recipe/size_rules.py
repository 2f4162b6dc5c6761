"""Rules of sizes: batches, processes, stages, chunks and steps have to multiply out."""

from __future__ import annotations

from gradwire.documents.recipe_schema import Recipe
from gradwire.recipe.broken import Broken, data_parallel_size, stage_count


def global_batch_is_the_product(recipe: Recipe) -> Broken | None:
    """global_batch_size, where given, is batch_size_per_gpu x gradient_accumulation x data-parallel size."""
    training = recipe.training
    asked, ranks = training.global_batch_size, data_parallel_size(recipe)
    if asked is None or ranks is None:
        return None
    unit = training.batch_size_per_gpu * ranks
    product = unit * training.gradient_accumulation
    if asked == product:
        return None
    below, above = asked // unit, asked // unit + 1
    if asked % unit == 0:
        way_out = f"gradient_accumulation {below} gives {asked}"
    elif below == 0:
        way_out = f"the smallest that fits is {unit} (gradient_accumulation 1)"
    else:
        way_out = (
            f"the nearest that fit are {below * unit} (gradient_accumulation {below}) "
            f"and {above * unit} (gradient_accumulation {above})"
        )
    return Broken(
        paths=(
            "training.global_batch_size",
            "training.num_gpus",
            "training.gradient_accumulation",
            "training.batch_size_per_gpu",
            "parallelism.pipeline.stages",
        ),
        message=f"global_batch_size is {asked}, but batch_size_per_gpu {training.batch_size_per_gpu} x "
        f"gradient_accumulation {training.gradient_accumulation} x data-parallel size {ranks} is {product}; {way_out}, "
        "or leave global_batch_size out: it is derived",
        url="https://github.com/OpenRLHF/OpenRLHF/issues/346",
    )


def stages_divide_processes(recipe: Recipe) -> Broken | None:
    """Stages x data-parallel size is the number of processes."""
    stages, processes = stage_count(recipe), recipe.training.num_gpus
    below, rest = divmod(processes, stages)
    if not rest:
        return None
    sizes = [str(count * stages) for count in (below, below + 1) if count]
    fitting = [count for count in range(1, processes + 1) if processes % count == 0]
    nearest = sorted(sorted(fitting, key=lambda count: abs(count - stages))[:2])
    return Broken(
        paths=("parallelism.pipeline.stages", "training.num_gpus"),
        message=f"{stages} stages do not divide {processes} processes: stages x data-parallel size must be num_gpus; "
        f"nearest num_gpus: {' or '.join(sizes)}; nearest stages: {' or '.join(str(count) for count in nearest)}",
        url="https://github.com/huggingface/nanotron/issues/250",
    )


def chunks_fill_the_stages(recipe: Recipe) -> Broken | None:
    """A schedule with fewer chunks than stages hangs or asserts."""
    pipeline, stages = recipe.parallelism.pipeline, stage_count(recipe)
    if pipeline is None or pipeline.chunks >= stages:
        return None
    return Broken(
        paths=("parallelism.pipeline.chunks", "parallelism.pipeline.stages", "training.num_gpus"),
        message=f"{pipeline.chunks} chunks are fewer than {stages} stages, so stages would wait for ever; "
        f"use chunks {stages} or more (four times the stages keeps the pipeline busy)",
        url="https://github.com/pytorch/torchtitan/issues/775",
    )


def chunks_divide_the_batch(recipe: Recipe) -> Broken | None:
    """Chunks of unequal size break the stages, which exchange tensors of one shape."""
    pipeline, batch = recipe.parallelism.pipeline, recipe.training.batch_size_per_gpu
    if pipeline is None or batch % pipeline.chunks == 0:
        return None
    below, above = batch // pipeline.chunks * pipeline.chunks, (batch // pipeline.chunks + 1) * pipeline.chunks
    sizes = f"{below} or {above}" if below else f"{above}"
    return Broken(
        paths=("parallelism.pipeline.chunks", "training.batch_size_per_gpu"),
        message=f"{pipeline.chunks} chunks do not divide batch_size_per_gpu {batch}; "
        f"nearest batch_size_per_gpu: {sizes}",
        url="https://github.com/pytorch/pytorch/issues/126600",
    )


def layers_fill_the_stages(recipe: Recipe) -> Broken | None:
    """Every stage holds at least one block."""
    stages = stage_count(recipe)
    if recipe.model is None or recipe.model.layers >= stages:
        return None
    return Broken(
        paths=("parallelism.pipeline.stages", "model.layers", "training.num_gpus"),
        message=f"{stages} stages are more than the model's {recipe.model.layers} layers; "
        f"use at most {recipe.model.layers} stages",
    )
