"""Accounts for what DeepSpeed's configuration makes of a plan: refusals, outcomes, and what may be merged in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradwire.documents.plan_schema import Plan
from gradwire.lowering.compilation import refuse_deepspeed_fullgraph
from gradwire.lowering.deepspeed_document import (
    FILE,
    communication_data_type,
    model_data_type,
    reduces_in_buckets,
    zero_stage,
)
from gradwire.lowering.extras import Decided, Target
from gradwire.lowering.fields import Outcome, Refusal, emulated, exact, unused
from gradwire.lowering.keys import deepspeed_keys
from gradwire.lowering.number_formats import deepspeed_format_outcomes, refuse_deepspeed_formats
from gradwire.lowering.program import in_program
from gradwire.lowering.sharding import decided_sharding, zero_sharding_outcomes
from gradwire.lowering.shared import (
    compression_outcomes,
    refuse_compression,
    refuse_fp8,
    refuse_fp16_on_cpu,
    refuse_overlap,
    refuse_pipeline,
)
from gradwire.recipe.learning_rate import changes
from gradwire.recipe.torch_buckets import TORCH_BUCKET_MIB

_AFTERWARDS = (
    "at stage 1 with a bf16 model and gradients added up in fp32, DeepSpeed reduces after the backward pass, and not "
    "in buckets of a chosen size"
)


def deepspeed_refusals(plan: Plan) -> list[Refusal]:
    """Return what DeepSpeed's configuration cannot express of a plan whose strategy has a ZeRO stage."""
    stage = zero_stage(plan)
    found = refuse_pipeline(
        plan, "DeepSpeed takes its stages from a PipelineModule in code, not from the configuration"
    )
    method = plan.recipe.communication.compression.method
    limit = "DeepSpeed reduces gradients itself, without DDP's hooks"
    nearest = "fp16" if method == "fp16-torch" else "none"
    found += refuse_compression(plan, limit, except_for=("fp16", "bf16"), nearest=nearest)
    found += refuse_overlap(plan, "DeepSpeed has no static graph", names=("static_graph",))
    if stage == 0:
        limit = "without ZeRO, DeepSpeed reduces after the backward pass, in pieces of 500000000 elements"
        found += refuse_overlap(plan, limit, names=("bucket_cap_mb",))
    elif not reduces_in_buckets(plan):
        found += refuse_overlap(plan, _AFTERWARDS, names=("bucket_cap_mb",))
    elif plan.recipe.communication.overlap.bucket_cap_mb == "auto":
        limit = "DeepSpeed's bucket is a number in its file, written before the ranks can measure the network"
        found += refuse_overlap(plan, limit, names=("bucket_cap_mb",))
    found += refuse_overlap(plan, "DeepSpeed has one size for all of its buckets", names=("first_bucket_mb",))
    found += refuse_deepspeed_formats(plan)
    found += refuse_fp8(plan, "DeepSpeed has no key for it; --backend accelerate has, under ddp and fsdp")
    found += refuse_deepspeed_fullgraph(plan)
    return found + refuse_fp16_on_cpu(plan, "DeepSpeed has no fp16 on a CPU")


def deepspeed_target(document: Mapping[str, Any], plan: Plan) -> Target:
    """Return the file that `backends.deepspeed` is merged into, with what the recipe decides in it."""
    forbidden = {}
    if "optimizer" not in document or changes(plan.recipe.training.scheduler):
        forbidden["scheduler"] = "training.scheduler decides"
    if "optimizer" not in document:
        forbidden["optimizer"] = "the program builds the optimizer from the recipe"
    if plan.pipeline is None:
        forbidden["pipeline"] = "DeepSpeed's engine does not read it"
    forbidden["bfloat16"] = "an alias of bf16 that Accelerate and Transformers do not know"
    if "torch_autocast" not in document:
        forbidden["torch_autocast"] = "training.precision decides the precision"
    training = plan.recipe.training
    if not training.compile or training.compile_regional:
        forbidden["compile"] = "engine.compile() reads it, which takes training.compile true, compile_regional false"
    forbidden["sequence_parallel_size"] = "changes how many ranks read different data, which the plan has settled"
    return Target(
        section="deepspeed",
        file=FILE,
        known=deepspeed_keys()[""],
        decided=_decided(document, plan),
        forbidden=forbidden,
        known_below=deepspeed_keys(),
    )


def deepspeed_outcomes(plan: Plan, program: tuple[str, ...] | None) -> dict[str, Outcome]:
    """Return the outcomes of all fields that the DeepSpeed JSON carries, the optimizer's excepted."""
    return {
        "training.precision": _precision_outcome(plan, program),
        "training.gradient_clip": exact(f"{FILE} gradient_clipping"),
        "training.batch_size_per_gpu": exact(f"{FILE} train_micro_batch_size_per_gpu"),
        "training.gradient_accumulation": exact(f"{FILE} gradient_accumulation_steps", _accumulation_note(plan)),
        "parallelism.data.strategy": exact(f"{FILE} zero_optimization.stage"),
        **zero_sharding_outcomes(plan),
        **deepspeed_format_outcomes(plan),
        **compression_outcomes(plan, _compression_outcome(plan), unused()),
        **_overlap_outcomes(plan),
    }


def _decided(document: Mapping[str, Any], plan: Plan) -> Decided:
    zero = document["zero_optimization"]
    batch = "training.batch_size_per_gpu x gradient_accumulation x ranks"
    decided = {
        "train_batch_size": (batch, document["train_batch_size"]),
        "train_micro_batch_size_per_gpu": ("training.batch_size_per_gpu", document["train_micro_batch_size_per_gpu"]),
        "gradient_accumulation_steps": ("training.gradient_accumulation", document["gradient_accumulation_steps"]),
        "gradient_clipping": ("training.gradient_clip", document["gradient_clipping"]),
        "zero_optimization.stage": ("parallelism.data.strategy", zero["stage"]),
        "gradient_allreduce_op": ("the average that every backend takes", "mean"),
    }
    decided |= decided_sharding(plan, document)
    if plan.recipe.communication.overlap.bucket_cap_mb is not None and "reduce_bucket_size" in zero:
        decided["zero_optimization.reduce_bucket_size"] = (
            "communication.overlap.bucket_cap_mb",
            zero["reduce_bucket_size"],
        )
    if plan.recipe.communication.compression.method != "none":
        method = "communication.compression.method"
        decided["communication_data_type"] = (method, document["communication_data_type"])
    elif plan.recipe.communication.dtype is not None:
        decided["communication_data_type"] = ("communication.dtype", document["communication_data_type"])
    for key, value in document.get("data_types", {}).items():
        decided[f"data_types.{key}"] = ("training.gradient_accumulation_dtype", value)
    for key, value in document.get("torch_autocast", {}).items():
        decided[f"torch_autocast.{key}"] = ("training.precision", value)
    for name in ("fp16.enabled", "bf16.enabled", "bf16.bf16_master_weights_and_grads", "bf16.bf16_optimizer_states"):
        section, key = name.split(".")
        decided[name] = ("training.precision", document[section].get(key, False))
    fields = {
        "lr": "scheduler" if "scheduler" in document else "learning_rate",
        "eps": "epsilon",
        "adam_w_mode": "optimizer",
    }
    if "optimizer" in document:
        decided["optimizer.type"] = ("training.optimizer", document["optimizer"]["type"])
        for key, value in document["optimizer"]["params"].items():
            if key != "torch_adam":
                decided[f"optimizer.params.{key}"] = (f"training.{fields.get(key, key)}", value)
    return decided


def _accumulation_note(plan: Plan) -> str | None:
    if zero_stage(plan) < 2 or plan.batch.gradient_accumulation == 1:
        return None
    return "ZeRO 2 and 3 reduce after every micro-batch, so accumulation saves no communication"


def _precision_outcome(plan: Plan, program: tuple[str, ...] | None) -> Outcome:
    precision = plan.recipe.training.precision
    if precision == "bf16-true" and zero_stage(plan) == 0:
        caster = in_program(program).carrier
        return emulated(
            f"{caster}, with both bf16.enabled and fp16.enabled false in {FILE}",
            f"DeepSpeed's pure bf16 needs ZeRO 1, 2 or 3: {caster} casts the model, so everything is bf16",
        )
    match precision:
        case "fp32":
            return exact(f"{FILE} fp16.enabled and bf16.enabled, both false")
        case "bf16-true":
            return exact(f"{FILE} bf16.bf16_master_weights_and_grads and bf16.bf16_optimizer_states")
        case "bf16-mixed" | "fp16-mixed" if zero_stage(plan) == 0:
            return exact(f"{FILE} torch_autocast", "torch's own autocast, as without DeepSpeed")
        case "bf16-mixed":
            carrier = f"{FILE} bf16.enabled"
        case "fp16-mixed":
            carrier = f"{FILE} fp16.enabled, its loss scale moving as that of torch's GradScaler"
    name = model_data_type(plan)
    return emulated(
        carrier,
        f"the whole model is cast to {name} beside fp32 master weights, where torch casts operation by operation; "
        f"gradients are {name} too, and are added up in it over the micro-batches",
    )


def _compression_outcome(plan: Plan) -> Outcome:
    method = plan.recipe.communication.compression.method
    if method == "none":
        return exact(f"{FILE} communication_data_type", f"gradients travel as {communication_data_type(plan)}")
    if zero_stage(plan) == 0:
        return emulated(
            f"{FILE} communication_data_type and prescale_gradients",
            f"cast to {method}, divided and summed in {method}, not in fp32; after the backward pass",
        )
    return emulated(
        f"{FILE} communication_data_type", f"cast to {method} and summed in {method}, not in fp32; then divided"
    )


def _overlap_outcomes(plan: Plan) -> dict[str, Outcome]:
    prefix = "communication.overlap."
    stage = zero_stage(plan)
    finds = emulated(FILE, "DeepSpeed always treats a parameter without a gradient as zero")
    unused_parameters = plan.recipe.communication.overlap.find_unused_parameters
    outcomes = {
        f"{prefix}static_graph": unused("DeepSpeed has no static graph"),
        f"{prefix}find_unused_parameters": finds if unused_parameters else unused("DeepSpeed does not search for them"),
        f"{prefix}bucket_cap_mb": unused(
            _AFTERWARDS if stage else "without ZeRO, DeepSpeed does not reduce in buckets of a chosen size"
        ),
        f"{prefix}first_bucket_mb": unused("DeepSpeed has one size for all of its buckets"),
        f"{prefix}gradient_as_bucket_view": unused("a setting of DDP"),
    }
    asked = plan.recipe.communication.overlap
    in_buckets = reduces_in_buckets(plan)
    if in_buckets:
        carrier = f"{FILE} zero_optimization.reduce_bucket_size"
        outcomes[f"{prefix}bucket_cap_mb"] = (
            emulated(carrier, f"{TORCH_BUCKET_MIB} MiB in elements of what travels, without a smaller first bucket")
            if asked.bucket_cap_mb is None
            else exact(carrier, "in elements of what travels, not bytes")
        )
    if asked.gradient_as_bucket_view:
        view = f"{prefix}gradient_as_bucket_view"
        outcomes[view] = emulated(
            f"{FILE} zero_optimization.{'contiguous_gradients' if in_buckets else 'stage'}",
            "gradients are copied into one flat buffer as they appear, so their own memory is freed"
            if in_buckets
            else "no bucket stays beside the gradients: a piece of them is copied while it travels",
        )
    return outcomes
