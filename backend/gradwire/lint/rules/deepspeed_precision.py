"""Rules for precision, units and defaults of a DeepSpeed file."""

from __future__ import annotations

from collections.abc import Iterator

from gradwire.lint.edits import rename
from gradwire.lint.rule import Hit, Rule, shown
from gradwire.targets.deepspeed_readings import is_on, number, precision_section, uses_bf16_optimizer, whole, zero_stage
from gradwire.targets.job import Job
from gradwire.targets.schema import visit
from gradwire.targets.tree import Document


def both_precisions(document: Document, job: Job) -> Iterator[Hit]:
    """fp16 and bf16 at once."""
    bf16 = precision_section(document)
    member = document.member(f"{bf16}.enabled")
    if member is not None and is_on(document, "fp16.enabled") and is_on(document, f"{bf16}.enabled"):
        yield Hit(
            at=member.node,
            path=f"{bf16}.enabled",
            message="fp16 and bf16 are both enabled",
            effect="DeepSpeed refuses to start",
            fix="keep one of them",
        )


def old_bf16_name(document: Document, job: Job) -> Iterator[Hit]:
    """bfloat16, the name that only DeepSpeed reads."""
    member = document.member("bfloat16")
    if member is None:
        return
    if document.value("bf16") is not None:
        yield Hit(
            at=member,
            path="bfloat16",
            message="bfloat16 is the old name of bf16, and bf16 is written too",
            effect="DeepSpeed ignores bfloat16",
            fix="remove bfloat16",
            severity="error",
        )
    else:
        yield Hit(
            at=member,
            path="bfloat16",
            message="bfloat16 is the old name of bf16",
            effect="Accelerate and the Trainer do not know it: they add bf16, false unless they were told, "
            "and bfloat16 is ignored",
            fix="write bf16",
            edits=rename(document, member, "bf16"),
        )


def cast_to_half(document: Document, job: Job) -> Iterator[Hit]:
    """fp16.auto_cast where the model is not in fp16."""
    member = document.member("fp16.auto_cast")
    if member is None or not is_on(document, "fp16.auto_cast") or is_on(document, "fp16.enabled"):
        return
    bf16 = precision_section(document)
    may_be_fp16 = document.value("fp16.enabled") == "auto" and not is_on(document, f"{bf16}.enabled")
    yield Hit(
        at=member,
        path="fp16.auto_cast",
        message="auto_cast casts inputs to fp16 also when fp16 is off",
        effect="floating-point inputs reach a bf16 or fp32 model as fp16, and the first layer fails"
        + (" unless fp16 is what fills the auto" if may_be_fp16 else ""),
        fix="remove auto_cast",
        severity="warning" if may_be_fp16 else None,
    )


def dynamic_scale(document: Document, job: Job) -> Iterator[Hit]:
    """Numbers of the dynamic loss scale that DeepSpeed refuses while it is on."""
    dynamic = is_on(document, "fp16.enabled") and document.value("fp16.loss_scale", 0) in (0, "auto")
    for name in ("loss_scale_window", "min_loss_scale"):
        member = document.member(f"fp16.{name}")
        size = whole(member.node.data) if member else None
        if member is not None and dynamic and size is not None and size <= 0:
            yield Hit(
                at=member.node,
                path=f"fp16.{name}",
                message=f"{name} is {shown(member.node.data)} while the loss scale is dynamic",
                effect="DeepSpeed refuses to start",
                fix="write a whole number above 0",
            )


def static_scale(document: Document, job: Job) -> Iterator[Hit]:
    """A fixed loss scale of 1, which does not protect fp16 gradients."""
    member = document.member("fp16.loss_scale")
    if member is not None and is_on(document, "fp16.enabled") and number(member.node.data) == 1:
        yield Hit(
            at=member.node,
            path="fp16.loss_scale",
            message="loss_scale 1 is a fixed scale of 1",
            effect="the loss is not scaled, so small fp16 gradients become 0",
            fix="write 0 to let the scale follow the gradients",
        )


def megabytes(document: Document, job: Job) -> Iterator[Hit]:
    """A bucket so small that it was meant in MiB."""
    for each in visit(document):
        size = number(each.member.node.data)
        bucket = each.member.name in ("reduce_bucket_size", "allgather_bucket_size")
        if bucket and each.section_path == "zero_optimization" and size is not None and 0 < size <= 4096:
            yield Hit(
                at=each.member.node,
                path=each.path,
                message=f"{each.member.name} {shown(size)} counts elements, not MiB",
                effect=f"gradients travel {shown(size)} elements at a time, one collective after the other",
                fix=f"write {shown(size * 1024 * 1024 / 2)} for {shown(size)} MiB of 16-bit values",
            )


def overlap_off(document: Document, job: Job) -> Iterator[Hit]:
    """Stages 1 and 2 without overlap_comm, which is off there."""
    stage, member = zero_stage(document), document.member("zero_optimization")
    if uses_bf16_optimizer(document):
        return
    if member is not None and stage in (1, 2) and not document.has("zero_optimization.overlap_comm"):
        yield Hit(
            at=member,
            path="zero_optimization.overlap_comm",
            message="overlap_comm is not written",
            effect=f"at stage {stage} gradients are reduced after the backward pass, not during it",
            fix='add "overlap_comm": true to overlap them',
        )


RULES = (
    Rule(
        code="DS701",
        name="two-precisions",
        severity="error",
        reads="deepspeed",
        check=both_precisions,
        summary="fp16 and bf16 at once.",
    ),
    Rule(
        code="DS702",
        name="bfloat16-section",
        severity="warning",
        reads="deepspeed",
        check=old_bf16_name,
        summary="The old name of bf16, which Accelerate does not know.",
    ),
    Rule(
        code="DS703",
        name="auto-cast",
        severity="error",
        reads="deepspeed",
        check=cast_to_half,
        summary="fp16.auto_cast on a model that is not in fp16.",
    ),
    Rule(
        code="DS704",
        name="dynamic-loss-scale",
        severity="error",
        reads="deepspeed",
        check=dynamic_scale,
        summary="A dynamic loss scale with a limit that is not above 0.",
    ),
    Rule(
        code="DS705",
        name="loss-scale-one",
        severity="warning",
        reads="deepspeed",
        check=static_scale,
        summary="fp16 with a fixed loss scale of 1.",
    ),
    Rule(
        code="DS801",
        name="bucket-in-megabytes",
        severity="warning",
        reads="deepspeed",
        check=megabytes,
        summary="A bucket size that looks like MiB.",
    ),
    Rule(
        code="DS802",
        name="no-overlap",
        severity="note",
        reads="deepspeed",
        check=overlap_off,
        summary="Stages 1 and 2 without overlap_comm.",
    ),
)
