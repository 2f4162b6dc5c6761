"""Rules of sizes: batches, processes, stages, chunks and steps have to multiply out."""

from __future__ import annotations

from gradwire.documents.recipe_schema import Recipe
from gradwire.recipe.broken import (
    SINGLE_STAGE_SCHEDULES,
    Broken,
    data_parallel_size,
    pipeline_ranks,
    stage_count,
    stages_per_rank,
)


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
    """Ranks of a pipeline x data-parallel size is the number of processes."""
    pipeline, ranks, processes = recipe.parallelism.pipeline, pipeline_ranks(recipe), recipe.training.num_gpus
    below, rest = divmod(processes, ranks)
    if pipeline is None or not rest:
        return None
    each = stages_per_rank(pipeline)
    sizes = [str(count * ranks) for count in (below, below + 1) if count]
    fitting = [count for count in range(1, processes + 1) if processes % count == 0]
    nearest = sorted(count * each for count in sorted(fitting, key=lambda count: abs(count - ranks))[:2])
    held = "" if each == 1 else f", {each} on each rank,"
    return Broken(
        paths=("parallelism.pipeline.stages", "training.num_gpus"),
        message=f"{stage_count(recipe)} stages{held} do not divide {processes} processes: "
        f"stages{'' if each == 1 else ' / stages_per_rank'} x data-parallel size must be num_gpus; "
        f"nearest num_gpus: {' or '.join(sizes)}; nearest stages: {' or '.join(str(count) for count in nearest)}",
        url="https://github.com/huggingface/nanotron/issues/250",
    )


def stages_per_rank_fit_the_schedule(recipe: Recipe) -> Broken | None:
    """gpipe and 1f1b run one stage per rank, zbv two, the interleaved schedules two or more."""
    pipeline = recipe.parallelism.pipeline
    if pipeline is None or pipeline.stages_per_rank is None:
        return None
    each, schedule = pipeline.stages_per_rank, pipeline.schedule
    if schedule in SINGLE_STAGE_SCHEDULES:
        fits, asks = each == 1, "one stage per rank; use stages_per_rank 1, or schedule interleaved-1f1b"
    elif schedule == "zbv":
        fits, asks = each == 2, "two stages per rank; use stages_per_rank 2"
    else:
        fits, asks = each >= 2, "two or more stages per rank; use stages_per_rank 2, or schedule 1f1b"
    if fits:
        return None
    return Broken(
        paths=("parallelism.pipeline.stages_per_rank", "parallelism.pipeline.schedule"),
        message=f"{schedule} runs {asks}",
    )


def stages_fill_the_ranks(recipe: Recipe) -> Broken | None:
    """Every rank of a pipeline holds the same number of stages."""
    pipeline = recipe.parallelism.pipeline
    if pipeline is None or pipeline.stages is None or pipeline.stages % stages_per_rank(pipeline) == 0:
        return None
    each = stages_per_rank(pipeline)
    below = pipeline.stages // each * each
    return Broken(
        paths=("parallelism.pipeline.stages", "parallelism.pipeline.stages_per_rank", "parallelism.pipeline.schedule"),
        message=f"{pipeline.stages} stages do not divide into {each} on each rank; nearest stages: "
        f"{f'{below} or ' if below else ''}{below + each}",
    )


def chunks_fill_the_stages(recipe: Recipe) -> Broken | None:
    """A schedule with fewer chunks than ranks in a pipeline hangs or asserts."""
    pipeline, ranks = recipe.parallelism.pipeline, pipeline_ranks(recipe)
    if pipeline is None or pipeline.chunks >= ranks:
        return None
    kind = "stages" if stages_per_rank(pipeline) == 1 else "ranks of the pipeline"
    return Broken(
        paths=("parallelism.pipeline.chunks", "parallelism.pipeline.stages", "training.num_gpus"),
        message=f"{pipeline.chunks} chunks are fewer than {ranks} {kind}, so stages would wait for ever; "
        f"use chunks {ranks} or more (four times the {kind} keeps the pipeline busy)",
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


def chunks_come_in_rounds(recipe: Recipe) -> Broken | None:
    """The interleaved schedules take the chunks in equal rounds, as many as whole sets of one chunk per rank."""
    pipeline, ranks = recipe.parallelism.pipeline, pipeline_ranks(recipe)
    if pipeline is None or ranks == 1 or not pipeline.schedule.startswith("interleaved"):
        return None
    if pipeline.chunks % max(1, pipeline.chunks // ranks) == 0:
        return None
    below = pipeline.chunks // ranks * ranks
    return Broken(
        paths=("parallelism.pipeline.chunks", "parallelism.pipeline.schedule", "training.num_gpus"),
        message=f"{pipeline.schedule} takes the chunks in {pipeline.chunks // ranks} equal rounds over {ranks} ranks, "
        f"which {pipeline.chunks} chunks are not; nearest chunks: {below} or {below + ranks}",
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
