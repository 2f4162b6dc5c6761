"""Rules of torch.compile: what it would ignore, and what it fails with."""

from __future__ import annotations

from gradwire.documents.recipe_schema import Recipe, Training
from gradwire.recipe.broken import ZERO_BUBBLE_SCHEDULES, Broken, Device, data_parallel_size, stage_count
from gradwire.recipe.torch_buckets import TORCH_FIRST_BUCKET_MIB

OPTIONS = ("compile_backend", "compile_mode", "compile_dynamic", "compile_fullgraph", "compile_regional")
"""What says how the model is compiled, where it is."""

_STRATEGY = "parallelism.data.strategy"
_CAP = "communication.overlap.bucket_cap_mb"


def options_need_compile(recipe: Recipe) -> Broken | None:
    """Nothing reads how a model is compiled that is not."""
    training, without = recipe.training, Training()
    given = [name for name in OPTIONS if getattr(training, name) != getattr(without, name)]
    if training.compile or not given:
        return None
    return Broken(
        paths=(f"training.{given[0]}", "training.compile"),
        message=f"{' and '.join(given)} would be ignored: compile is false; "
        f"set compile to true, or remove {'it' if len(given) == 1 else 'them'}",
    )


def modes_are_inductors(recipe: Recipe) -> Broken | None:
    """torch's other compilers warn of a mode and ignore it."""
    training = recipe.training
    if training.compile_mode == "default" or training.compile_backend == "inductor":
        return None
    return Broken(
        paths=("training.compile_mode", "training.compile_backend"),
        message=f"{training.compile_backend} would ignore compile_mode {training.compile_mode}: only inductor "
        "has modes; use compile_backend inductor, or remove compile_mode",
    )


def whole_graphs_gather_nothing(recipe: Recipe) -> Broken | None:
    """Gathering weights cuts the graph: within every module under ZeRO 3, around every block under fully_shard."""
    training, strategy = recipe.training, recipe.parallelism.data.strategy
    cuts = strategy == "zero3" or (strategy == "fsdp" and not training.compile_regional)
    if not (training.compile and training.compile_fullgraph and cuts):
        return None
    return Broken(
        paths=("training.compile_fullgraph", _STRATEGY),
        message=f"{strategy} gathers weights within what is compiled, and torch.compile cuts the graph there; "
        f"set compile_fullgraph to false{', or compile_regional to true' if strategy == 'fsdp' else ''}",
    )


def compiled_graphs_are_cut_at_whole_buckets(recipe: Recipe) -> Broken | None:
    """torch.compile cuts a model's graph where DDP's buckets end, and asserts on buckets below DDP's own first one."""
    cap = recipe.communication.overlap.bucket_cap_mb
    is_ddp = recipe.parallelism.data.strategy == "ddp" and data_parallel_size(recipe) != 1
    if not (recipe.training.compile and is_ddp) or cap is None or cap == "auto" or cap >= TORCH_FIRST_BUCKET_MIB:
        return None
    return Broken(
        paths=(_CAP, "training.compile"),
        message=f"torch.compile fails with DDP buckets below {TORCH_FIRST_BUCKET_MIB} MiB, and bucket_cap_mb is "
        f"{cap:g}; use {TORCH_FIRST_BUCKET_MIB} or more, or set compile to false",
    )


def zero_bubble_has_no_compile(recipe: Recipe) -> Broken | None:
    """torch refuses compiled stages where the backward pass is split."""
    pipeline = recipe.parallelism.pipeline
    if pipeline is None or pipeline.schedule not in ZERO_BUBBLE_SCHEDULES or stage_count(recipe) == 1:
        return None
    if not recipe.training.compile:
        return None
    return Broken(
        paths=("parallelism.pipeline.schedule", "training.compile"),
        message=f"{pipeline.schedule} splits the backward pass, which torch.compile does not allow; "
        "use schedule 1f1b or interleaved-1f1b, or compile false",
    )


def cuda_graphs_need_a_gpu(recipe: Recipe, device: Device) -> Broken | None:
    """On a CPU torch says that it skips them, and runs everything as if it were not compiled."""
    training = recipe.training
    if device != "cpu" or training.compile_backend != "cudagraphs":
        return None
    return Broken(
        paths=("training.compile_backend", "training.device"),
        message="cudagraphs records what a GPU runs, and there is none on cpu; use inductor, or aot_eager for a trial",
    )
