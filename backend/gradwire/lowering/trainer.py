"""Lowers a plan to transformers' Trainer: `training_arguments.json`, with `deepspeed.json` beside it for ZeRO."""

from __future__ import annotations

from gradwire.artifact import document_text
from gradwire.documents.lowering_schema import WrittenDefault
from gradwire.documents.plan_schema import Plan
from gradwire.lowering.accelerate_document import is_zero
from gradwire.lowering.accelerate_fsdp import accelerate_fsdp_refusals
from gradwire.lowering.compilation import dynamo_environment, refuse_accelerate_fullgraph
from gradwire.lowering.deepspeed import deepspeed_environment
from gradwire.lowering.deepspeed_account import deepspeed_refusals, deepspeed_target
from gradwire.lowering.deepspeed_defaults import written_defaults
from gradwire.lowering.deepspeed_document import FILE as DEEPSPEED_FILE
from gradwire.lowering.deepspeed_document import deepspeed_document
from gradwire.lowering.extras import dotted_keys, merge_extras, refuse_extras
from gradwire.lowering.fields import Refusal
from gradwire.lowering.number_formats import refuse_accelerate_fsdp_formats, refuse_torch_formats
from gradwire.lowering.placement import Placement
from gradwire.lowering.program import program_words
from gradwire.lowering.shared import (
    COMMON_ENVIRONMENT,
    Lowered,
    refuse_compression,
    refuse_ddp_settings,
    refuse_fp8,
    refuse_fp16_on_cpu,
    refuse_overlap,
    refuse_pipeline,
)
from gradwire.lowering.torchrun import torchrun_words
from gradwire.lowering.trainer_account import trainer_outcomes
from gradwire.lowering.trainer_document import FILE, arguments_document, fsdp_environment


def refusals(plan: Plan) -> list[Refusal]:
    """Return what the Trainer cannot express of `plan`."""
    found = _scheduler_refusals(plan) + refuse_accelerate_fullgraph(plan)
    found += refuse_fp8(plan, "TrainingArguments has no fp8; --backend accelerate has, under ddp and fsdp")
    if is_zero(plan):
        found += deepspeed_refusals(plan)
        document = deepspeed_document(plan, with_optimizer=True, with_scheduler=False)
        return found + refuse_extras(plan.recipe.backends.deepspeed, deepspeed_target(document, plan))
    found += refuse_pipeline(plan, "the Trainer has no pipeline schedule")
    found += refuse_fp16_on_cpu(plan, "the Trainer has no fp16 on a CPU")
    found += refuse_torch_formats(plan)
    found += _adam_refusals(plan)
    if plan.recipe.parallelism.data.strategy == "fsdp":
        found += refuse_ddp_settings(plan) + refuse_accelerate_fsdp_formats(plan)
        return found + accelerate_fsdp_refusals(plan)
    if plan.recipe.communication.compression.method == "local-sgd":
        found += refuse_compression(plan, "the Trainer evaluates and saves where the ranks differ")
    return found + _overlap_refusals(plan)


def build(plan: Plan, placement: Placement, program: tuple[str, ...] | None) -> Lowered:
    """Return the Trainer's arguments, the DeepSpeed configuration where ZeRO needs it, and the launch command."""
    arguments = arguments_document(plan, placement)
    files = {FILE: document_text(arguments)}
    defaults = _written_defaults(plan, arguments)
    reported: tuple[str, ...] = ()
    if is_zero(plan):
        extras = plan.recipe.backends.deepspeed
        deepspeed = deepspeed_document(plan, with_optimizer=True, with_scheduler=False)
        files[DEEPSPEED_FILE] = document_text(merge_extras(deepspeed, extras))
        reported = tuple(f"{DEEPSPEED_FILE} {key}" for key, _ in dotted_keys(extras))
        defaults += written_defaults(deepspeed)
    return Lowered(
        files=files,
        command=(*torchrun_words(plan, placement), *program_words(program, "-m")),
        environment=_environment(plan),
        outcomes=trainer_outcomes(plan, program),
        defaults=defaults,
        extras=reported,
    )


def _environment(plan: Plan) -> dict[str, str]:
    dynamo = dynamo_environment(plan, by_arguments=True)
    if is_zero(plan):
        return {**deepspeed_environment(plan), **dynamo}
    return {**COMMON_ENVIRONMENT, **fsdp_environment(plan), **dynamo}


def _scheduler_refusals(plan: Plan) -> list[Refusal]:
    training = plan.recipe.training
    total = training.scheduler.total_steps
    if training.scheduler.type == "constant" or total is None or total >= training.max_steps:
        return []
    path = "training.scheduler.total_steps"
    limit = f"the Trainer's learning rate falls until its last step, and training goes on until {training.max_steps}"
    return [Refusal(path=path, limit=limit, nearest="total_steps left out", fallback={path: None})]


def _adam_refusals(plan: Plan) -> list[Refusal]:
    if plan.recipe.training.optimizer != "Adam":
        return []
    path = "training.optimizer"
    limit = "the Trainer's Adam is AdamW: its weight decay is decoupled; zero1, zero2 and zero3 take it from DeepSpeed"
    return [Refusal(path=path, limit=limit, nearest="AdamW", fallback={path: "AdamW"})]


def _overlap_refusals(plan: Plan) -> list[Refusal]:
    overlap, found = plan.recipe.communication.overlap, []
    if overlap.bucket_cap_mb == "auto":
        limit = "the Trainer wraps the model before the ranks can measure anything"
        found += refuse_overlap(plan, limit, names=("bucket_cap_mb",))
    if overlap.static_graph and plan.batch.gradient_accumulation > 1:
        limit = "the Trainer's first micro-step sends nothing, where torch asserts that a static graph does"
        found += refuse_overlap(plan, limit, names=("static_graph",))
    return found


def _written_defaults(plan: Plan, arguments: dict[str, object]) -> tuple[WrittenDefault, ...]:
    hidden: list[tuple[str, object, str]] = [
        ("max_grad_norm", 1.0, "gradients would be clipped at 1.0"),
        ("optim", "adamw_torch_fused", "another kernel would step, with other rounding"),
        ("seed", 42, "the weights and the data's order would be of another seed"),
        ("lr_scheduler_type", "linear", "the learning rate would fall to 0"),
        ("adam_beta2", 0.999, "Adam would average over other steps"),
    ]
    found = [
        WrittenDefault(key=key, value=arguments[key], hidden_default=default, why=why)
        for key, default, why in hidden
        if key in arguments and arguments[key] != default
    ]
    if "ddp_find_unused_parameters" in arguments and not plan.recipe.communication.overlap.find_unused_parameters:
        why = "every step would search for parameters that took no part in it"
        found.append(WrittenDefault(key="ddp_find_unused_parameters", value=False, hidden_default=True, why=why))
    return tuple(found)
