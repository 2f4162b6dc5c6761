"""Lowers a plan to plain torch: `torchrun` starts the program, the plan carries every value."""

from __future__ import annotations

from gradwire.documents.plan_schema import Plan, SettledPipeline
from gradwire.lowering.compilation import refuse_fullgraph
from gradwire.lowering.fields import Outcome, Refusal, exact, unused
from gradwire.lowering.number_formats import label_outcomes, refuse_torch_formats, torch_format_outcomes
from gradwire.lowering.placement import Placement
from gradwire.lowering.program import in_program, program_words
from gradwire.lowering.sharding import (
    program_sharding_outcomes,
    refuse_version_one,
    refuse_wrap_by_size,
    refuse_zero_sharding,
)
from gradwire.lowering.shared import (
    COMMON_ENVIRONMENT,
    Lowered,
    common_outcomes,
    compression_outcomes,
    optimizer_outcomes,
    overlap_outcomes,
    refuse_compression,
    refuse_ddp_settings,
    refuse_fp8,
    refuse_fp16,
    refuse_fp16_on_cpu,
    refuse_overlap,
    scheduler_outcomes,
)
from gradwire.lowering.torchrun import torchrun_words
from gradwire.recipe.broken import SINGLE_STAGE_SCHEDULES
from gradwire.recipe.compression_options import PIPELINED_METHODS

_OPTIMIZER = ("optimizer", "learning_rate", "weight_decay", "betas", "epsilon", "momentum")
_BATCH = ("precision", "gradient_clip", "batch_size_per_gpu", "gradient_accumulation")


def refusals(plan: Plan) -> list[Refusal]:
    """Return what plain torch cannot express of `plan`."""
    strategy = plan.recipe.parallelism.data.strategy
    found = refuse_fp16_on_cpu(plan, "torch's loss scaling needs a GPU")
    if strategy.startswith("zero"):
        path = "parallelism.data.strategy"
        found.append(
            Refusal(
                path=path,
                limit=f"plain torch has no {strategy}; --backend deepspeed and --backend accelerate have",
                nearest="fsdp (parameters, gradients and optimizer state all sharded)",
                fallback={path: "fsdp"},
            )
        )
        if not plan.recipe.training.compile_regional:
            found += refuse_fullgraph(plan, "fully_shard gathers weights around every block, which cuts the graph")
    found += refuse_zero_sharding(plan)
    found += refuse_fp8(plan, "torch itself has no 8-bit training; --backend accelerate has, under ddp and fsdp")
    if strategy == "fsdp":
        found += refuse_ddp_settings(plan)
        found += refuse_version_one(plan, "gradwire.train shards with fully_shard; --backend accelerate has version 1")
        found += refuse_wrap_by_size(plan, "fully_shard has no policy by size; --backend accelerate has")
    found += refuse_torch_formats(plan)
    if plan.pipeline is not None:
        found += _pipeline_refusals(plan, plan.pipeline)
    return found


def _pipeline_refusals(plan: Plan, pipeline: SettledPipeline) -> list[Refusal]:
    if pipeline.schedule in SINGLE_STAGE_SCHEDULES:
        limit = "a stage takes no local steps, and torch's hooks are for whole models"
        found = refuse_compression(plan, limit, except_for=PIPELINED_METHODS)
    else:
        limit = f"with {pipeline.schedule} gradients are averaged after the passes, without DDP's hooks"
        found = refuse_compression(plan, limit)
    limit = "a loss cannot be scaled over pipeline stages"
    found += refuse_fp16(plan, limit)
    if pipeline.schedule not in SINGLE_STAGE_SCHEDULES and plan.recipe.parallelism.data.strategy == "ddp":
        limit = f"with {pipeline.schedule} gradients are averaged after the passes, without DDP's buckets"
        found += refuse_overlap(plan, limit)
    return found


def build(plan: Plan, placement: Placement, program: tuple[str, ...] | None) -> Lowered:
    """Return the torchrun command of `plan`; the plan itself is the only file that the target reads."""
    return Lowered(
        files={},
        command=(*torchrun_words(plan, placement), *program_words(program, "-m")),
        environment=COMMON_ENVIRONMENT,
        outcomes=_outcomes(plan, program),
    )


def _outcomes(plan: Plan, program: tuple[str, ...] | None) -> dict[str, Outcome]:
    by_program = in_program(program)
    method = plan.recipe.communication.compression.method
    sharded = plan.recipe.parallelism.data.strategy == "fsdp"
    return {
        **common_outcomes(plan, program),
        **{f"training.{name}": by_program for name in _BATCH},
        "training.num_gpus": exact("torchrun --nnodes x --nproc-per-node"),
        "parallelism.data.strategy": by_program,
        **program_sharding_outcomes(plan, by_program, is_own_script=program is not None),
        **optimizer_outcomes(plan, dict.fromkeys(_OPTIMIZER, by_program)),
        **scheduler_outcomes(plan, by_program),
        **torch_format_outcomes(plan, by_program),
        **label_outcomes(plan, reads=by_program, weighs=by_program),
        **compression_outcomes(plan, unused() if method == "none" else by_program, by_program),
        **overlap_outcomes(unused("DDP's settings") if sharded else by_program),
    }
