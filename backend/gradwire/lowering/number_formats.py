"""Accounts for the number formats in which gradients are added up and travel, and for what a label weighs."""

from __future__ import annotations

from dataclasses import replace

from gradwire.documents.plan_schema import Plan
from gradwire.lowering.deepspeed_document import (
    FILE,
    communication_data_type,
    gradient_accumulation_data_type,
    model_data_type,
    zero_stage,
)
from gradwire.lowering.fields import Outcome, Refusal, emulated, exact, unused
from gradwire.recipe.broken import SINGLE_STAGE_SCHEDULES

_ACCUMULATION = "training.gradient_accumulation_dtype"
_DTYPE = "communication.dtype"
_WEIGHTING = "training.loss_weighting"
_MIN_LABELS = "data.min_labels"


def refuse_torch_formats(plan: Plan) -> list[Refusal]:
    """Return the refusals of number formats in which torch does not keep or average gradients."""
    found = []
    kept, asked = _torch_gradients(plan), plan.recipe.training.gradient_accumulation_dtype
    if asked not in (None, kept):
        limit = f"torch adds gradients up in the format of the weights, {kept}"
        found.append(_refusal(_ACCUMULATION, limit, nearest=kept))
    dtype, pipeline = plan.recipe.communication.dtype, plan.pipeline
    has_hooks = pipeline is None or pipeline.schedule in SINGLE_STAGE_SCHEDULES
    if not has_hooks and plan.recipe.parallelism.data.strategy == "ddp" and dtype not in (None, kept):
        found.append(
            _refusal(_DTYPE, "several stages average their gradients as they are, without a hook", nearest=kept)
        )
    return found


def refuse_accelerate_fsdp_formats(plan: Plan) -> list[Refusal]:
    """Return the refusals of number formats in which Accelerate's FSDP does not average gradients."""
    reduced, asked = plan.recipe.training.precision.split("-")[0], plan.recipe.communication.dtype
    if asked in (None, reduced):
        return []
    return [_refusal(_DTYPE, f"Accelerate's FSDP averages in the type it computes in, {reduced}", nearest=reduced)]


def refuse_deepspeed_formats(plan: Plan) -> list[Refusal]:
    """Return the refusals of number formats in which DeepSpeed does not add gradients up."""
    training, kept = plan.recipe.training, model_data_type(plan)
    asked = training.gradient_accumulation_dtype
    if asked in (None, kept):
        return []
    if zero_stage(plan) == 0:
        limit = f"without ZeRO, gradients are added up as the backward pass leaves them, in {kept}"
    elif training.precision == "bf16-true":
        limit = "beside bf16 master weights, DeepSpeed keeps gradients in bf16"
    else:
        return []
    return [_refusal(_ACCUMULATION, limit, nearest=kept)]


def torch_format_outcomes(plan: Plan, by_program: Outcome) -> dict[str, Outcome]:
    """Return the outcomes of the number formats where `by_program` says what carries them."""
    kept = _torch_gradients(plan)
    return {
        _ACCUMULATION: _accumulation(plan, kept) or replace(by_program, note=f"torch's own: {kept}"),
        _DTYPE: _travels_as_it_is(plan) or by_program,
    }


def deepspeed_format_outcomes(plan: Plan) -> dict[str, Outcome]:
    """Return the outcomes of the number formats in a DeepSpeed JSON."""
    written = gradient_accumulation_data_type(plan) is not None
    carrier = f"{FILE} data_types.grad_accum_dtype" if written else FILE
    return {
        _ACCUMULATION: _accumulation(plan, model_data_type(plan)) or exact(carrier),
        _DTYPE: _travels_as_it_is(plan) or _deepspeed_dtype(plan),
    }


def label_outcomes(plan: Plan, *, reads: Outcome, weighs: Outcome) -> dict[str, Outcome]:
    """Return the outcomes of what labels count and weigh: what `reads` the data, and what `weighs` their losses."""
    is_even = plan.recipe.training.loss_weighting == "micro-batch"
    return {
        _MIN_LABELS: unused("every label counts") if plan.recipe.data.min_labels is None else reads,
        _WEIGHTING: exact("the mean over micro-steps and ranks that every backend takes") if is_even else weighs,
    }


def _refusal(path: str, limit: str, *, nearest: str) -> Refusal:
    return Refusal(path=path, limit=limit, nearest=f"{nearest} (leave it out)", fallback={path: None})


def _torch_gradients(plan: Plan) -> str:
    return "bf16" if plan.recipe.training.precision == "bf16-true" else "fp32"


def _accumulation(plan: Plan, kept: str) -> Outcome | None:
    if plan.recipe.training.gradient_accumulation_dtype is not None:
        return None
    return unused(f"the backend's own: {kept}")


def _travels_as_it_is(plan: Plan) -> Outcome | None:
    if plan.recipe.communication.dtype is None:
        return unused("gradients travel in the format that they are in")
    if plan.batch.data_parallel_size == 1:
        return unused("one data-parallel rank: nothing travels")
    return None


def _deepspeed_dtype(plan: Plan) -> Outcome:
    travels = communication_data_type(plan)
    carrier = f"{FILE} communication_data_type"
    if travels == "fp32":
        return exact(carrier)
    return emulated(carrier, f"cast to {travels} and summed in {travels}, where DDP sums in fp32")
