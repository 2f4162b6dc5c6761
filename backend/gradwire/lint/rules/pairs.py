"""Rules for a DeepSpeed JSON together with the Accelerate file that starts it."""

from __future__ import annotations

from collections.abc import Iterator

from gradwire.lint.rule import Hit, Rule, shown
from gradwire.lint.rules.accelerate_launch import distributed_type
from gradwire.targets.deepspeed_readings import is_on, zero_stage
from gradwire.targets.job import Job
from gradwire.targets.tree import Document

PRECISION_URL = "https://github.com/huggingface/transformers/issues/39849"


def no_zero_section(document: Document, job: Job) -> Iterator[Hit]:
    """A DeepSpeed JSON without zero_optimization, which Accelerate refuses."""
    if not document.has("zero_optimization"):
        yield Hit(
            at=document.root,
            path="zero_optimization",
            message="zero_optimization is not written",
            effect="Accelerate refuses to start: please specify the ZeRO optimization config",
            fix='add "zero_optimization": {"stage": 0}',
        )


def precision(document: Document, job: Job) -> Iterator[Hit]:
    """mixed_precision against fp16 and bf16 of the DeepSpeed JSON."""
    wanted = job.mixed_precision
    if wanted not in ("fp16", "bf16", "fp8"):
        return
    own, other = ("fp16", "bf16") if wanted == "fp16" else ("bf16", "fp16")
    member = document.member(f"{other}.enabled")
    if member is not None and str(member.node.data).lower() == "true":
        yield Hit(
            at=member.node,
            path=f"{other}.enabled",
            message=f"{other} is enabled here, and mixed_precision is {wanted}",
            effect=f"Accelerate refuses to start: it cannot be set to {wanted} when {other} is set in the "
            "DeepSpeed file",
            fix=f"enable {own} here, or start with --mixed_precision {other}",
        )
    member = document.member(own)
    if member is not None and not is_on(document, f"{own}.enabled") and document.value(f"{own}.enabled") != "auto":
        enabled = document.member(f"{own}.enabled")
        yield Hit(
            at=enabled.node if enabled else member,
            path=f"{own}.enabled",
            message=f"{own} is {'off' if enabled else 'not enabled'} here, and mixed_precision is {wanted}",
            effect="the model trains in fp32, without a word",
            fix='write "enabled": true, or "auto"',
        )
    if document.has("bfloat16") and not document.has("bf16"):
        yield Hit(
            at=document.member("bfloat16") or document.root,
            path="bfloat16",
            message="Accelerate does not know bfloat16",
            effect="it adds bf16 itself, and DeepSpeed then ignores bfloat16",
            fix="write bf16",
        )


def plain_precision(document: Document, job: Job) -> Iterator[Hit]:
    """ "auto" precision under an Accelerate that was started without mixed precision."""
    if job.mixed_precision not in (None, "no") or job.trainer is not None:
        return
    for section in ("fp16", "bf16"):
        member = document.member(f"{section}.enabled")
        if member is not None and member.node.data == "auto":
            yield Hit(
                at=member.node,
                path=f"{section}.enabled",
                message='"auto", and mixed_precision is not given',
                effect="it becomes false: without --mixed_precision the model trains in fp32 (the Trainer "
                "fills it from its arguments)",
                fix="write true or false",
            )


def init_flag(document: Document, job: Job) -> Iterator[Hit]:
    """zero3_init_flag with a JSON below stage 3."""
    accelerate = job.accelerate
    member = accelerate.member("deepspeed_config.zero3_init_flag") if accelerate else None
    if member is None or str(member.node.data).lower() != "true" or zero_stage(document) == 3:
        return
    yield Hit(
        at=document.member("zero_optimization.stage") or document.root,
        path="zero_optimization.stage",
        message=f"stage {zero_stage(document)}, and zero3_init_flag is true in "
        f"{accelerate.source if accelerate else ''}",
        effect="Accelerate sets the flag to false",
        fix="set zero3_init_flag to false, or stage to 3",
    )


def not_deepspeed(document: Document, job: Job) -> Iterator[Hit]:
    """A DeepSpeed JSON beside an Accelerate file that starts something else."""
    accelerate = job.accelerate
    if accelerate is None or job.trainer is not None:
        return
    kind = distributed_type(accelerate)
    if kind != "DEEPSPEED":
        yield Hit(
            at=document.root,
            path="",
            message=f"{accelerate.source} starts distributed_type {kind}",
            effect="this file is not read",
            fix=f"set distributed_type to DEEPSPEED in {accelerate.source}",
        )


def accelerate_settings(document: Document, job: Job) -> Iterator[Hit]:
    """DeepSpeed settings in the Accelerate file that the Trainer's DeepSpeed JSON replaces."""
    accelerate = job.accelerate
    if (
        accelerate is None
        or accelerate.value("deepspeed_config.deepspeed_config_file")
        or distributed_type(accelerate) != "DEEPSPEED"
    ):
        return
    names = (
        "zero_stage",
        "gradient_accumulation_steps",
        "gradient_clipping",
        "offload_optimizer_device",
        "offload_param_device",
        "zero3_save_16bit_model",
    )
    written = [name for name in names if accelerate.has(f"deepspeed_config.{name}")]
    if accelerate.value("mixed_precision") is not None:
        written.append("mixed_precision")
    if written:
        yield Hit(
            at=document.root,
            path="",
            message=f"{accelerate.source} says {', '.join(written)} too",
            effect="with this file (deepspeed_config_file, or the Trainer's deepspeed argument) Accelerate "
            "refuses to start",
            fix=f"keep them here and remove them from {accelerate.source}",
        )


def zero_stages(document: Document, job: Job) -> Iterator[Hit]:
    """Two files with two stages."""
    accelerate = job.accelerate
    stage = accelerate.value("deepspeed_config.zero_stage") if accelerate else None
    if accelerate is not None and stage is not None and stage != zero_stage(document):
        yield Hit(
            at=document.member("zero_optimization.stage") or document.root,
            path="zero_optimization.stage",
            message=f"stage {zero_stage(document)} here, and zero_stage {shown(stage)} in {accelerate.source}",
            effect="the two files disagree",
            fix="name the stage once, in the DeepSpeed JSON",
        )


RULES = (
    Rule(
        code="PR101",
        name="no-zero-section",
        severity="error",
        reads="deepspeed",
        needs=("accelerate",),
        check=no_zero_section,
        summary="A DeepSpeed JSON without zero_optimization, which Accelerate refuses.",
    ),
    Rule(
        code="PR102",
        name="two-precisions",
        severity="error",
        reads="deepspeed",
        check=precision,
        url=PRECISION_URL,
        summary="mixed_precision against the precision of the DeepSpeed JSON.",
    ),
    Rule(
        code="PR103",
        name="no-precision",
        severity="warning",
        reads="deepspeed",
        needs=("accelerate",),
        check=plain_precision,
        summary='"auto" precision without --mixed_precision.',
    ),
    Rule(
        code="PR104",
        name="init-flag-below-stage-3",
        severity="warning",
        reads="deepspeed",
        needs=("accelerate",),
        check=init_flag,
        summary="zero3_init_flag with a JSON below stage 3.",
    ),
    Rule(
        code="PR105",
        name="file-not-read",
        severity="error",
        reads="deepspeed",
        needs=("accelerate",),
        check=not_deepspeed,
        summary="A DeepSpeed JSON beside an Accelerate file that starts something else.",
    ),
    Rule(
        code="PR106",
        name="settings-in-both",
        severity="error",
        reads="deepspeed",
        needs=("accelerate",),
        check=accelerate_settings,
        summary="DeepSpeed settings in both files.",
    ),
    Rule(
        code="PR107",
        name="two-stages",
        severity="error",
        reads="deepspeed",
        needs=("accelerate",),
        check=zero_stages,
        summary="Two files with two ZeRO stages.",
    ),
)
