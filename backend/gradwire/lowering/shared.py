"""Holds what every backend's lowering has in common: its result, and the outcomes that do not depend on the backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gradwire.artifact import PLAN_FILE, Word
from gradwire.documents.lowering_schema import WrittenDefault
from gradwire.documents.plan_schema import Plan
from gradwire.documents.recipe_schema import Overlap
from gradwire.lowering.compilation import compile_outcomes
from gradwire.lowering.fields import Outcome, Refusal, exact, recipe_paths, unused
from gradwire.lowering.program import in_program
from gradwire.recipe.compression_options import READ_BY


@dataclass(frozen=True, kw_only=True, slots=True)
class Lowered:
    """What one backend makes of a plan: the target's files, how it is started, and what became of each field."""

    files: Mapping[str, str]
    command: tuple[Word, ...]
    environment: Mapping[str, str]
    outcomes: Mapping[str, Outcome]
    defaults: tuple[WrittenDefault, ...] = ()
    extras: tuple[str, ...] = ()


# Threads per rank: the launchers' own choices differ, which would make their throughputs incomparable.
COMMON_ENVIRONMENT: Mapping[str, str] = {"OMP_NUM_THREADS": "1"}

_PROGRAM_PATHS = (
    "data.path",
    "training.flash_attention",
    "training.gradient_checkpointing",
    "training.max_steps",
    "training.seed",
    "measurement.warmup_steps",
    "measurement.trackers",
)


def common_outcomes(plan: Plan, program: tuple[str, ...] | None) -> dict[str, Outcome]:
    """Return the outcomes of all fields that mean the same on every backend."""
    training = plan.recipe.training
    by_program = in_program(program)
    checkpointing = training.gradient_checkpointing
    return {
        "extends": unused("resolved before lowering"),
        "summary": unused("for people; `gradwire presets` shows it"),
        **_model_outcomes(plan, program),
        **dict.fromkeys(_PROGRAM_PATHS, by_program),
        **compile_outcomes(plan, by_program),
        "training.gradient_checkpointing_reentrant": by_program if checkpointing else unused("nothing is recomputed"),
        "training.device": exact(f"{PLAN_FILE} world.device"),
        "training.fp8": unused("no matrix product in 8-bit floats is asked for"),
        "training.global_batch_size": _checked_batch(plan),
        **_pipeline_outcomes(plan, by_program),
        "backends.accelerate": unused("keys for accelerate only"),
        "backends.deepspeed": unused("keys for deepspeed only"),
    }


def extras_outcome(extras: Mapping[str, Any], file: str) -> Outcome:
    """Return the outcome of a recipe's own keys for the backend that `file` is for."""
    return exact(f"{file}, merged last") if extras else unused("no keys are given")


def optimizer_outcomes(plan: Plan, carriers: Mapping[str, Outcome]) -> dict[str, Outcome]:
    """Return the outcomes of the optimizer's fields, given who carries each; keys are the names below `training`."""
    if plan.recipe.training.optimizer == "SGD":
        ignored = dict.fromkeys(("betas", "epsilon"), unused("SGD has no moment estimates"))
    else:
        ignored = {"momentum": unused("only SGD has momentum")}
    return {f"training.{name}": ignored.get(name, carrier) for name, carrier in carriers.items()}


def scheduler_outcomes(plan: Plan, outcome: Outcome) -> dict[str, Outcome]:
    """Return the outcomes of `training.scheduler`, given what carries the learning rate's course."""
    prefix = "training.scheduler."
    found = {path: outcome for path in recipe_paths() if path.startswith(prefix)}
    if plan.recipe.training.scheduler.type == "constant":
        found |= dict.fromkeys(
            (f"{prefix}total_steps", f"{prefix}min_ratio"), unused("the learning rate does not fall")
        )
    return found


def compression_outcomes(plan: Plan, method: Outcome, option: Outcome) -> dict[str, Outcome]:
    """Return the outcomes of `communication.compression`: `method`'s, and `option` for each that the method reads."""
    prefix = "communication.compression."
    asked = plan.recipe.communication.compression.method
    options = {
        f"{prefix}{name}": option if asked in methods else unused(f"only for {' and '.join(methods)}")
        for name, methods in READ_BY.items()
    }
    return {f"{prefix}method": method, **options}


def overlap_outcomes(outcome: Outcome) -> dict[str, Outcome]:
    """Return one outcome for every field of `communication.overlap`."""
    return {path: outcome for path in recipe_paths() if path.startswith("communication.overlap.")}


def refuse_pipeline(plan: Plan, limit: str) -> list[Refusal]:
    """Return the refusal of each field of a settled pipeline; falls back to data parallelism alone."""
    if plan.pipeline is None:
        return []
    # Without stages every process is a data-parallel rank, so a stated global batch no longer holds.
    fallback: dict[str, Any] = {"parallelism.pipeline": None, "training.global_batch_size": None}
    return [
        Refusal(path=path, limit=limit, nearest="no pipeline (or --backend native)", fallback=fallback)
        for path in recipe_paths()
        if path.startswith("parallelism.pipeline.")
    ]


def refuse_overlap(plan: Plan, limit: str, *, names: tuple[str, ...] | None = None) -> list[Refusal]:
    """Return a refusal of each overlap setting (of `names`, or of all) that is not at its default."""
    asked, default = plan.recipe.communication.overlap, Overlap()
    return [
        Refusal(
            path=f"communication.overlap.{name}",
            limit=limit,
            nearest=f"{name} left out",
            fallback={f"communication.overlap.{name}": getattr(default, name)},
        )
        for name in names or tuple(Overlap.__struct_fields__)
        if getattr(asked, name) != getattr(default, name)
    ]


def refuse_compression(
    plan: Plan, limit: str, *, except_for: tuple[str, ...] = (), nearest: str = "none"
) -> list[Refusal]:
    """Return a refusal of compression by any method but `except_for`; `nearest` is the method to fall back to."""
    if plan.recipe.communication.compression.method in ("none", *except_for):
        return []
    path = "communication.compression.method"
    return [Refusal(path=path, limit=limit, nearest=nearest, fallback={path: nearest})]


def refuse_fp16(plan: Plan, limit: str) -> list[Refusal]:
    """Return a refusal of fp16-mixed."""
    if plan.recipe.training.precision != "fp16-mixed":
        return []
    path, nearest = "training.precision", "bf16-mixed"
    return [Refusal(path=path, limit=limit, nearest=nearest, fallback={path: nearest})]


def refuse_ddp_settings(plan: Plan) -> list[Refusal]:
    """Return the refusals of DDP's buckets and hooks under fully_shard."""
    limit = "fully_shard reduces block by block, without DDP's buckets and hooks"
    found = refuse_overlap(plan, limit)
    return found + refuse_compression(plan, limit)


def refuse_fp8(plan: Plan, limit: str) -> list[Refusal]:
    """Return a refusal of matrix products in 8-bit floats."""
    if plan.recipe.training.fp8 == "none":
        return []
    path = "training.fp8"
    return [Refusal(path=path, limit=limit, nearest="none (bf16-mixed alone)", fallback={path: "none"})]


def refuse_fp16_on_cpu(plan: Plan, limit: str) -> list[Refusal]:
    """Return a refusal of fp16-mixed on a CPU."""
    return refuse_fp16(plan, limit) if plan.world.device == "cpu" else []


def _model_outcomes(plan: Plan, program: tuple[str, ...] | None) -> dict[str, Outcome]:
    outcome = in_program(program) if plan.recipe.model else unused("the user's own script brings the model")
    return {path: outcome for path in recipe_paths() if path.startswith("model.")}


def _checked_batch(plan: Plan) -> Outcome:
    if plan.recipe.training.global_batch_size is None:
        return unused(f"derived: {plan.batch.global_batch_size}", carrier=f"{PLAN_FILE} batch.global_batch_size")
    return exact(f"{PLAN_FILE} batch.global_batch_size")


def _pipeline_outcomes(plan: Plan, by_program: Outcome) -> dict[str, Outcome]:
    if plan.pipeline is not None:
        outcome = by_program
    elif plan.recipe.parallelism.pipeline is not None:
        outcome = unused("a single stage: no pipeline")
    else:
        outcome = unused("no pipeline is asked for")
    return {path: outcome for path in recipe_paths() if path.startswith("parallelism.pipeline.")}
