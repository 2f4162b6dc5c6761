"""Rules of how gradients travel: compression, overlap, and what each data-parallel strategy takes."""

from __future__ import annotations

import bisect

from gradwire.documents.recipe_schema import Compression, Recipe
from gradwire.recipe.broken import (
    SHARDED,
    SINGLE_STAGE_SCHEDULES,
    ZERO_BUBBLE_SCHEDULES,
    Broken,
    data_parallel_size,
    stage_count,
)
from gradwire.recipe.compression_options import LOW_RANK, PIPELINED_METHODS
from gradwire.recipe.model_shapes import compresses_any
from gradwire.recipe.torch_buckets import TORCH_BUCKET_MIB

_METHOD = "communication.compression.method"
_RANK = "communication.compression.matrix_approximation_rank"
_START = "communication.compression.start_step"
_STRATEGY = "parallelism.data.strategy"
_OVERLAP = "communication.overlap"


def torchs_powersgd_starts_late_enough(recipe: Recipe) -> Broken | None:
    """torch's PowerSGD state needs two uncompressed steps before warm start or error feedback."""
    compression = recipe.communication.compression
    needing = [name for name in ("warm_start", "error_feedback") if getattr(compression, name)]
    if compression.start_step >= _earliest_start(compression):
        return None
    return Broken(
        paths=(_START, _METHOD),
        message=f"start_step {compression.start_step} is too early for torch's hook with {' and '.join(needing)}; "
        f"use 2 or more, set {' and '.join(needing)} to false, or use method powersgd",
        url="https://github.com/pytorch/pytorch/pull/51427",
    )


def _earliest_start(compression: Compression) -> int:
    needs_full_steps = compression.warm_start or compression.error_feedback
    return 2 if compression.method == "powersgd-torch" and needs_full_steps else 0


def powersgd_starts_before_the_end(recipe: Recipe) -> Broken | None:
    """A run that ends before start_step never compresses."""
    compression, max_steps = recipe.communication.compression, recipe.training.max_steps
    if compression.method not in LOW_RANK or compression.start_step < max_steps:
        return None
    earlier = f"start_step {max_steps - 1} or less, or " if max_steps > _earliest_start(compression) else ""
    return Broken(
        paths=(_START, "training.max_steps", _METHOD),
        message=f"PowerSGD starts at step {compression.start_step}, but the run has {max_steps} steps, so nothing "
        f"would ever be compressed; use {earlier}max_steps {compression.start_step + 1} or more",
        url="https://github.com/epfml/powersgd/issues/17",
    )


def local_sgd_synchronises_before_the_end(recipe: Recipe) -> Broken | None:
    """A run that ends before the first local steps are over averages its weights once, at the end."""
    compression, max_steps = recipe.communication.compression, recipe.training.max_steps
    first = compression.start_step + compression.local_steps
    if compression.method != "local-sgd" or first <= max_steps:
        return None
    return Broken(
        paths=("communication.compression.local_steps", _START, "training.max_steps", _METHOD),
        message=f"ranks would first synchronise after step {first} (start_step {compression.start_step} + local_steps "
        f"{compression.local_steps}), but the run has {max_steps} steps; use max_steps {first} or more, "
        "or fewer local_steps",
    )


def local_sgd_scales_no_loss(recipe: Recipe) -> Broken | None:
    """Each rank's loss scale would move by itself, and each would skip other steps."""
    if recipe.communication.compression.method != "local-sgd" or recipe.training.precision != "fp16-mixed":
        return None
    return Broken(
        paths=(_METHOD, "training.precision"),
        message="local-sgd lets each rank step by itself, and with fp16-mixed each would skip other steps; "
        "use bf16-mixed or fp32",
    )


def auto_buckets_send_gradients(recipe: Recipe) -> Broken | None:
    """local-sgd reduces no gradient while a backward pass runs."""
    compression, overlap = recipe.communication.compression, recipe.communication.overlap
    if compression.method != "local-sgd" or overlap.bucket_cap_mb != "auto":
        return None
    return Broken(
        paths=(f"{_OVERLAP}.bucket_cap_mb", _METHOD),
        message="bucket_cap_mb auto hides gradients behind the backward pass, and local-sgd sends none; "
        "use a number, or leave it out",
    )


def powersgd_rank_compresses(recipe: Recipe) -> Broken | None:
    """With too high a rank the factors are no smaller than the matrices, which are then sent whole."""
    compression = recipe.communication.compression
    if compression.method not in LOW_RANK or recipe.model is None:
        return None
    model, rank, rate = recipe.model, compression.matrix_approximation_rank, compression.min_compression_rate
    if compresses_any(model, rank, rate):
        return None
    largest = bisect.bisect_left(range(1, rank), True, key=lambda lower: not compresses_any(model, lower, rate))
    way_out = f"use rank {largest} or less" if largest else "this model is too small to compress: use method none"
    return Broken(
        paths=(_RANK, "communication.compression.min_compression_rate", "model.hidden_size", _METHOD),
        message=f"rank {rank} compresses no gradient of this model by more than "
        f"min_compression_rate {rate:g}, so everything would be sent whole; {way_out}",
    )


def alternating_powersgd_starts_warm(recipe: Recipe) -> Broken | None:
    """Each step continues from the factor that the step before averaged."""
    compression = recipe.communication.compression
    if compression.method != "powersgd-alternating" or compression.warm_start:
        return None
    return Broken(
        paths=("communication.compression.warm_start", _METHOD),
        message="powersgd-alternating makes each step's factor from the last step's, so it cannot start cold; "
        "set warm_start to true, or use method powersgd",
    )


def topk_sends_less_than_everything(recipe: Recipe) -> Broken | None:
    """Each rank sends 8 bytes an element to every other one, where an all-reduce's bytes do not grow with the ranks."""
    compression, ranks = recipe.communication.compression, data_parallel_size(recipe)
    if compression.method != "topk" or ranks in (None, 1):
        return None
    element_bytes = 2 if recipe.training.precision == "bf16-true" else 4
    share = compression.topk_fraction * ranks * 4 / element_bytes
    if share < 1:
        return None
    largest = compression.topk_fraction / share
    return Broken(
        paths=("communication.compression.topk_fraction", "training.num_gpus", _METHOD),
        message=f"topk_fraction {compression.topk_fraction:g} on {ranks} ranks sends {share:.3g} times the bytes of "
        f"full gradients; use less than {largest:g}, or method int8, whose bytes do not grow with the ranks",
    )


def compression_needs_whole_gradients(recipe: Recipe) -> Broken | None:
    """Compression is a hook of plain DDP; sharded strategies reduce on their own."""
    method, strategy = recipe.communication.compression.method, recipe.parallelism.data.strategy
    if method == "none" or strategy not in SHARDED:
        return None
    return Broken(
        paths=(_METHOD, _STRATEGY),
        message=f"compression {method} works under plain DDP only, and the strategy is {strategy}; "
        "use strategy ddp, or compression.method none",
    )


def compression_has_no_pipeline(recipe: Recipe) -> Broken | None:
    """Where a rank holds several stages, DDP's hooks are not called; local steps would differ from stage to stage."""
    method, pipeline = recipe.communication.compression.method, recipe.parallelism.pipeline
    if method == "none" or pipeline is None or stage_count(recipe) == 1:
        return None
    if method not in PIPELINED_METHODS:
        return Broken(
            paths=(_METHOD, "parallelism.pipeline.chunks", "parallelism.pipeline.stages", "training.num_gpus"),
            message=f"compression {method} does not combine with a pipeline of {stage_count(recipe)} stages; "
            f"use {', '.join(PIPELINED_METHODS)} or none, or parallelism.pipeline null",
        )
    if pipeline.schedule in SINGLE_STAGE_SCHEDULES:
        return None
    return Broken(
        paths=(_METHOD, "parallelism.pipeline.schedule", "training.num_gpus"),
        message=f"compression {method} is a hook of DDP, and {pipeline.schedule} averages gradients without DDP; "
        "use schedule 1f1b or gpipe, or compression.method none",
    )


def overlap_settings_are_read(recipe: Recipe) -> Broken | None:
    """DDP's own switches mean nothing under a sharded strategy; DeepSpeed has buckets, fully_shard has none."""
    overlap, strategy = recipe.communication.overlap, recipe.parallelism.data.strategy
    if strategy not in SHARDED:
        return None
    given = [
        name for name in ("gradient_as_bucket_view", "static_graph", "find_unused_parameters") if getattr(overlap, name)
    ]
    if overlap.first_bucket_mb is not None:
        given.insert(0, "first_bucket_mb")
    if overlap.bucket_cap_mb == "auto" or (strategy == "fsdp" and overlap.bucket_cap_mb is not None):
        given.insert(0, "bucket_cap_mb")
    if not given:
        return None
    return Broken(
        paths=(*(f"{_OVERLAP}.{name}" for name in given), _STRATEGY),
        message=f"{' and '.join(given)} would be ignored: DDP reads {'it' if len(given) == 1 else 'them'}, "
        f"and the strategy is {strategy}; remove {'it' if len(given) == 1 else 'them'}, or use strategy ddp",
    )


def first_bucket_is_no_larger(recipe: Recipe) -> Broken | None:
    """The first bucket is filled up to its own size, the others up to theirs: a larger one would only start later."""
    overlap = recipe.communication.overlap
    first, cap = overlap.first_bucket_mb, overlap.bucket_cap_mb
    largest = TORCH_BUCKET_MIB if cap is None else cap
    if first is None or largest == "auto" or first <= largest:
        return None
    has = f"absent, so {largest}" if cap is None else f"{largest:g}"
    return Broken(
        paths=(f"{_OVERLAP}.first_bucket_mb", f"{_OVERLAP}.bucket_cap_mb"),
        message=f"first_bucket_mb {first:g} is more than bucket_cap_mb, which is {has}; "
        f"use {largest:g} or less, or leave it out",
    )


def auto_buckets_have_no_pipeline(recipe: Recipe) -> Broken | None:
    """A stage is ready to reduce once per chunk, which the model of when gradients are ready does not know."""
    if recipe.communication.overlap.bucket_cap_mb != "auto" or stage_count(recipe) == 1:
        return None
    return Broken(
        paths=(f"{_OVERLAP}.bucket_cap_mb", "parallelism.pipeline.chunks", "training.num_gpus"),
        message=f"bucket_cap_mb auto does not know when a pipeline of {stage_count(recipe)} stages reduces; "
        "use a number, or leave it out",
    )


def static_graph_finds_unused_itself(recipe: Recipe) -> Broken | None:
    """A static graph and a search for unused parameters in each step exclude each other."""
    overlap = recipe.communication.overlap
    if not (overlap.static_graph and overlap.find_unused_parameters):
        return None
    return Broken(
        paths=(f"{_OVERLAP}.find_unused_parameters", f"{_OVERLAP}.static_graph"),
        message="static_graph promises that the used parameters never change, so there is nothing for "
        "find_unused_parameters to search; keep one of the two",
    )


def static_graph_has_no_pipeline(recipe: Recipe) -> Broken | None:
    """Measured with torch 2.13, 2 stages x 2 pipelines: the losses drift from those without static_graph, unsaid."""
    if not recipe.communication.overlap.static_graph or stage_count(recipe) == 1:
        return None
    return Broken(
        paths=(f"{_OVERLAP}.static_graph", "parallelism.pipeline.chunks", "training.num_gpus"),
        message=f"static_graph gives wrong gradients with a pipeline of {stage_count(recipe)} stages, whose chunks run "
        "several backward passes a step; set it to false",
    )


def zero_has_no_pipeline(recipe: Recipe) -> Broken | None:
    """DeepSpeed's sharding of a pipeline's stages is not built here."""
    strategy = recipe.parallelism.data.strategy
    if recipe.parallelism.pipeline is None or strategy not in ("zero1", "zero2", "zero3"):
        return None
    return Broken(
        paths=(_STRATEGY, "parallelism.pipeline.chunks"),
        message=f"{strategy} does not combine with a pipeline; use strategy ddp (1f1b) or fsdp, "
        "or parallelism.pipeline null",
    )


def zero_bubble_has_no_fsdp(recipe: Recipe) -> Broken | None:
    """torch's fully_shard reduces in hooks that a weight gradient computed apart never reaches."""
    pipeline = recipe.parallelism.pipeline
    if pipeline is None or pipeline.schedule not in ZERO_BUBBLE_SCHEDULES or stage_count(recipe) == 1:
        return None
    if recipe.parallelism.data.strategy != "fsdp":
        return None
    return Broken(
        paths=("parallelism.pipeline.schedule", _STRATEGY, "training.num_gpus"),
        message=f"{pipeline.schedule} with fsdp gives wrong gradients without a word, in torch 2.13; "
        "use schedule 1f1b or interleaved-1f1b, or strategy ddp",
    )
