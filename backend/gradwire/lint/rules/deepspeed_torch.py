"""Rules for optimizers and schedules of torch that a DeepSpeed file names, and that the engine cannot step."""

from __future__ import annotations

from collections.abc import Iterator

from gradwire.lint.rule import Hit, Rule
from gradwire.targets.deepspeed_parameters import optimizer_type, scheduler_type
from gradwire.targets.deepspeed_readings import is_on, precision_section, zero_stage
from gradwire.targets.job import Job
from gradwire.targets.schema import load_schema
from gradwire.targets.tree import Document


def torch_schedulers(document: Document, job: Job) -> Iterator[Hit]:
    """A schedule of torch, which takes no optimizer that DeepSpeed has wrapped."""
    name, member = scheduler_type(document), document.member("scheduler.type")
    types = load_schema("deepspeed")["$defs"]["Scheduler"]["x-types"]
    if member is None or name is None or name in types["own"] or name not in types["torch"]:
        return
    by = _wrapped_by(document)
    if name in types["needs-code"]:
        effect = "the file is read, and deepspeed.initialize then fails: JSON cannot say its arguments"
    elif by is not None:
        effect = f"the file is read, and deepspeed.initialize then fails: with {by} the optimizer is DeepSpeed's own"
    elif name == "ReduceLROnPlateau":
        effect = "the first step fails, unless the script calls engine.step(lr_kwargs={'metrics': loss})"
    else:
        return
    auto = "auto" in str(by)
    yield Hit(
        at=member.node,
        path="scheduler.type",
        message=f"{name} is a schedule of torch" + (", and those take torch's optimizers only" if by else ""),
        effect=effect,
        fix=f"use one of {', '.join(types['own'])}, or make the schedule in the script and step it there",
        severity="warning" if name not in types["needs-code"] and (by is None or auto) else None,
    )


def _wrapped_by(document: Document) -> str | None:
    """What makes DeepSpeed put an optimizer of its own around torch's; None: nothing does."""
    if zero_stage(document) > 0:
        return f"ZeRO stage {zero_stage(document)}"
    for section in ("fp16", precision_section(document)):
        if is_on(document, f"{section}.enabled"):
            return section
    for section in ("fp16", precision_section(document)):
        if document.value(f"{section}.enabled") == "auto":
            return f'{section} "auto", where that becomes true,'
    return None


def optimizers_without_a_step(document: Document, job: Job) -> Iterator[Hit]:
    """Optimizers of torch whose step needs what the engine does not give."""
    needs = {
        "LBFGS": ("a function that computes the loss again", "the first step fails: no closure is passed"),
        "SparseAdam": ("sparse gradients", "the first step fails at a gradient that is not sparse"),
    }
    name, member = optimizer_type(document), document.member("optimizer.type")
    if name in needs and member is not None:
        yield Hit(
            at=member.node,
            path="optimizer.type",
            message=f"{name} needs {needs[name][0]}",
            effect=needs[name][1],
            fix="use another optimizer, such as AdamW",
            severity="warning" if name == "SparseAdam" else None,
        )


RULES = (
    Rule(
        code="DS414",
        name="optimizer-without-a-step",
        severity="error",
        reads="deepspeed",
        check=optimizers_without_a_step,
        summary="An optimizer of torch that DeepSpeed's engine cannot step.",
    ),
    Rule(
        code="DS508",
        name="schedule-of-torch",
        severity="error",
        reads="deepspeed",
        check=torch_schedulers,
        summary="A schedule of torch for an optimizer that DeepSpeed has wrapped.",
    ),
)
