"""Rules of the model and of how a block is computed: widths, heads, precision, recomputation, optimizer."""

from __future__ import annotations

from gradwire.documents.recipe_schema import Recipe
from gradwire.recipe.broken import Broken, stage_count

_CHECKPOINTING = "training.gradient_checkpointing"


def heads_divide_the_width(recipe: Recipe) -> Broken | None:
    """Each head takes an equal share of hidden_size."""
    model = recipe.model
    if model is None or model.hidden_size % model.attention_heads == 0:
        return None
    below = model.hidden_size // model.attention_heads * model.attention_heads
    above = below + model.attention_heads
    return Broken(
        paths=("model.attention_heads", "model.hidden_size"),
        message=f"{model.attention_heads} attention_heads do not divide hidden_size {model.hidden_size}; "
        f"nearest hidden_size: {f'{below} or {above}' if below else above}",
    )


def rotary_heads_are_even(recipe: Recipe) -> Broken | None:
    """Rotary positions turn pairs of a head's elements."""
    model = recipe.model
    if model is None or model.family != "llama" or model.hidden_size % model.attention_heads:
        return None
    head_width = model.hidden_size // model.attention_heads
    if head_width % 2 == 0:
        return None
    return Broken(
        paths=("model.hidden_size", "model.attention_heads"),
        message=f"hidden_size {model.hidden_size} over {model.attention_heads} attention_heads makes heads of "
        f"{head_width}, and llama's rotary positions need an even width; "
        f"use hidden_size {model.attention_heads * (head_width + 1)}",
    )


def key_value_heads_divide_the_heads(recipe: Recipe) -> Broken | None:
    """Each key and value head serves an equal group of query heads."""
    model = recipe.model
    if model is None or model.key_value_heads is None or model.attention_heads % model.key_value_heads == 0:
        return None
    fitting = [str(count) for count in range(1, model.attention_heads + 1) if model.attention_heads % count == 0]
    return Broken(
        paths=("model.key_value_heads", "model.attention_heads"),
        message=f"{model.key_value_heads} key_value_heads do not divide {model.attention_heads} attention_heads; "
        f"use {', '.join(fitting)}",
    )


def key_value_heads_are_llamas(recipe: Recipe) -> Broken | None:
    """GPT-2 has no grouped keys and values."""
    model = recipe.model
    if model is None or model.family == "llama" or model.key_value_heads is None:
        return None
    return Broken(
        paths=("model.key_value_heads", "model.family"),
        message=f"key_value_heads is llama's, and the family is {model.family}; remove it, or use family llama",
    )


def tied_embeddings_share_a_stage(recipe: Recipe) -> Broken | None:
    """The first stage holds the input embedding and the last the output projection."""
    if recipe.model is None or not recipe.model.tie_embeddings or stage_count(recipe) == 1:
        return None
    return Broken(
        paths=("model.tie_embeddings", "parallelism.pipeline.stages", "training.num_gpus"),
        message=f"tied embeddings would lie on the first and the last of {stage_count(recipe)} stages and drift apart; "
        "set tie_embeddings to false, or use one stage",
    )


def flash_attention_has_16_bits(recipe: Recipe) -> Broken | None:
    """The flash kernels take fp16 and bf16 only."""
    training = recipe.training
    if not training.flash_attention or training.precision != "fp32":
        return None
    return Broken(
        paths=("training.flash_attention", "training.precision"),
        message="flash attention needs a 16-bit precision, and the precision is fp32; "
        "use precision bf16-mixed, bf16-true or fp16-mixed, or set flash_attention to false",
    )


def reentrant_needs_checkpointing(recipe: Recipe) -> Broken | None:
    """The form of recomputation means nothing where nothing is recomputed."""
    training = recipe.training
    if not training.gradient_checkpointing_reentrant or training.gradient_checkpointing:
        return None
    return Broken(
        paths=(f"{_CHECKPOINTING}_reentrant", _CHECKPOINTING),
        message="gradient_checkpointing_reentrant would be ignored: gradient_checkpointing is false; "
        "set that to true, or remove this",
    )


def reentrant_has_no_pipeline(recipe: Recipe) -> Broken | None:
    """A stage's backward pass names its inputs, which torch's reentrant checkpointing refuses."""
    training = recipe.training
    if not (training.gradient_checkpointing and training.gradient_checkpointing_reentrant) or stage_count(recipe) == 1:
        return None
    return Broken(
        paths=(f"{_CHECKPOINTING}_reentrant", "parallelism.pipeline.chunks", "training.num_gpus"),
        message=f"reentrant gradient checkpointing fails with a pipeline of {stage_count(recipe)} stages; "
        "set gradient_checkpointing_reentrant to false",
    )


def fp16_has_no_pipeline(recipe: Recipe) -> Broken | None:
    """The loss, and so its scale, lives on the last stage only."""
    if recipe.training.precision != "fp16-mixed" or stage_count(recipe) == 1:
        return None
    return Broken(
        paths=("training.precision", "parallelism.pipeline.chunks", "training.num_gpus"),
        message=f"fp16-mixed cannot scale its loss over {stage_count(recipe)} pipeline stages; "
        "use bf16-mixed or bf16-true",
    )


def reentrant_runs_once_per_parameter(recipe: Recipe) -> Broken | None:
    """Reentrant recomputation and DDP's search for unused parameters mark a parameter ready twice."""
    training, overlap = recipe.training, recipe.communication.overlap
    reentrant = training.gradient_checkpointing and training.gradient_checkpointing_reentrant
    if not reentrant or recipe.parallelism.data.strategy != "ddp":
        return None
    if not overlap.find_unused_parameters or overlap.static_graph:
        return None
    return Broken(
        paths=(f"{_CHECKPOINTING}_reentrant", "communication.overlap.find_unused_parameters", _CHECKPOINTING),
        message="reentrant gradient checkpointing with find_unused_parameters fails in DDP with 'marked ready "
        "only once'; set gradient_checkpointing_reentrant or find_unused_parameters to false",
    )


def optimizer_reads_its_options(recipe: Recipe) -> Broken | None:
    """Momentum is SGD's; betas and epsilon are Adam's and AdamW's."""
    training = recipe.training
    if training.optimizer == "SGD":
        given = ["betas"] * (training.betas != [0.9, 0.999]) + ["epsilon"] * (training.epsilon != 1e-8)
    else:
        given = ["momentum"] * (training.momentum != 0)
    if not given:
        return None
    way_out = "use Adam or AdamW" if training.optimizer == "SGD" else "use optimizer SGD; Adam's counterpart is betas"
    return Broken(
        paths=(*(f"training.{name}" for name in given), "training.optimizer"),
        message=f"{' and '.join(given)} would be ignored: {training.optimizer} has no such option; "
        f"remove {'it' if len(given) == 1 else 'them'}, or {way_out}",
    )


def fp8_computes_beside_bf16(recipe: Recipe) -> Broken | None:
    """What is not a matrix product of a linear layer runs in bf16, over fp32 weights."""
    training = recipe.training
    if training.fp8 == "none" or training.precision == "bf16-mixed":
        return None
    return Broken(
        paths=("training.fp8", "training.precision"),
        message=f"fp8 runs beside bf16 with fp32 weights, and the precision is {training.precision}; "
        "use precision bf16-mixed, or fp8 none",
    )
