"""Puts a plan's workload into words that are equal exactly where two runs may be compared."""

from __future__ import annotations

from gradwire.documents.measurement_schema import Workload
from gradwire.documents.plan_schema import Plan
from gradwire.documents.recipe_schema import Compression, Model, Pipeline
from gradwire.recipe.broken import stages_per_rank
from gradwire.recipe.compression_options import READ_BY


def workload_of(plan: Plan, device_name: str) -> Workload:
    """Return what `plan` trains, on devices called `device_name`.

    The words, with the recipe's own values:

    * model: `llama hidden 4096 layers 32 heads 32/32 ffn 11008 vocab 32000`, heads being query/key-value heads,
      and ` tied` at the end where the embeddings are; `the script's own` without a model in the recipe.
    * pipeline: `1f1b, 8 chunks`, None without one. What was asked for, also where one process left one stage of it:
      that run is the baseline of the others.
    * compression: the method and every option that it reads, `powersgd rank 4, warm start, error feedback, from
      step 10, rate above 2`, with `cold start` and `no error feedback` where they are off.
    * device: `cuda NVIDIA H100 80GB HBM3`.
    """
    recipe = plan.recipe
    training = recipe.training
    return Workload(
        model=_model_words(recipe.model) if recipe.model else "the script's own",
        sequence_length=recipe.model.sequence_length if recipe.model else None,
        precision=training.precision,
        optimizer=training.optimizer,
        batch_size_per_gpu=plan.batch.batch_size_per_gpu,
        gradient_accumulation=plan.batch.gradient_accumulation,
        strategy=recipe.parallelism.data.strategy,
        pipeline=_pipeline_words(recipe.parallelism.pipeline) if recipe.parallelism.pipeline else None,
        compression=_compression_words(recipe.communication.compression) + _dtype_words(recipe.communication.dtype),
        gradient_checkpointing=training.gradient_checkpointing,
        compile=training.compile,
        device=f"{plan.world.device} {device_name}",
    )


def _model_words(model: Model) -> str:
    key_value_heads = model.key_value_heads or model.attention_heads
    inner = model.intermediate_size or 4 * model.hidden_size
    words = (
        f"{model.family} hidden {model.hidden_size} layers {model.layers} "
        f"heads {model.attention_heads}/{key_value_heads} ffn {inner} vocab {model.vocab_size}"
    )
    return f"{words} tied" if model.tie_embeddings else words


def _pipeline_words(pipeline: Pipeline) -> str:
    each = stages_per_rank(pipeline)
    held = "" if each == 1 else f", {each} stages per rank"
    return f"{pipeline.schedule}, {pipeline.chunks} chunks{held}"


def _dtype_words(dtype: str | None) -> str:
    return f", {dtype} on the wire" if dtype else ""


def _compression_words(compression: Compression) -> str:
    words = {
        "matrix_approximation_rank": f"rank {compression.matrix_approximation_rank}",
        "local_steps": f"{compression.local_steps} local steps",
        "outer_learning_rate": f"outer learning rate {compression.outer_learning_rate:g}",
        "outer_momentum": f"outer momentum {compression.outer_momentum:g}",
        "difference_dtype": f"{compression.difference_dtype} difference" if compression.difference_dtype else None,
        "int8_block_size": f"blocks of {compression.int8_block_size}",
        "topk_fraction": f"fraction {compression.topk_fraction:g}",
        "warm_start": "warm start" if compression.warm_start else "cold start",
        "error_feedback": "error feedback" if compression.error_feedback else "no error feedback",
        "start_step": f"from step {compression.start_step}",
        "min_compression_rate": f"rate above {compression.min_compression_rate:g}",
        "wire_dtype": f"{compression.wire_dtype} on the wire" if compression.wire_dtype else None,
    }
    read = [word for option, word in words.items() if word and compression.method in READ_BY[option]]
    return f"{compression.method} {', '.join(read)}" if read else compression.method
