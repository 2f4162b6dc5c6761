"""Rules for the scheduler section of a DeepSpeed file."""

from __future__ import annotations

from collections.abc import Iterator

from gradwire.lint.rule import Hit, Rule, shown
from gradwire.targets.deepspeed_parameters import scheduler_type
from gradwire.targets.deepspeed_readings import number, whole
from gradwire.targets.job import Job
from gradwire.targets.schema import Spec, load_schema
from gradwire.targets.suggest import near_miss
from gradwire.targets.tree import Document

PARAMS = "scheduler.params"
WARMUPS = ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR")


def _section(name: str) -> Spec:
    section: Spec = load_schema("deepspeed")["$defs"][name]
    return section


def unknown_scheduler(document: Document, job: Job) -> Iterator[Hit]:
    """A scheduler that neither DeepSpeed nor torch has."""
    name, member = scheduler_type(document), document.member("scheduler.type")
    types = _section("Scheduler")["x-types"]
    if name is not None and member is not None and name not in types["own"] and name not in types["torch"]:
        near = near_miss(name, [*types["own"], *types["torch"]])
        yield Hit(
            at=member.node,
            path="scheduler.type",
            message=f"no scheduler {name}" + (f" (did you mean {near}?)" if near else ""),
            effect="the file is read, and deepspeed.initialize then fails: does not recognize LR scheduler",
            fix=f"write {near}" if near else f"use one of {', '.join(types['own'])}",
        )


def unknown_parameters(document: Document, job: Job) -> Iterator[Hit]:
    """Parameters that the scheduler's constructor does not take, and required ones that are missing."""
    name, holder = scheduler_type(document), document.member("scheduler")
    table = _section("SchedulerParams")["x-parameters"].get(name)
    if table is None or holder is None:
        return
    params = document.member(PARAMS)
    written = (params.node.members if params else None) or {}
    for key, member in written.items():
        if key not in table["accepted"]:
            near = near_miss(key, table["accepted"])
            yield Hit(
                at=member,
                path=f"{PARAMS}.{key}",
                message=f"{name} takes no parameter {key}" + (f" (did you mean {near}?)" if near else ""),
                effect="the file is read, and deepspeed.initialize then fails: unexpected keyword argument",
                fix=f"write {near}" if near else f"remove it; it takes {', '.join(table['accepted'])}",
            )
    missing = [key for key in table["required"] if key not in written]
    if missing:
        yield Hit(
            at=params or holder,
            path=PARAMS,
            message=f"{name} needs {' and '.join(missing)}",
            effect="the file is read, and deepspeed.initialize then fails: missing argument",
            fix=f"add {' and '.join(missing)}" + (', "auto" under the Trainer' if "total_num_steps" in missing else ""),
        )
    elif params is None:
        yield Hit(
            at=holder,
            path="scheduler",
            message="scheduler has no params",
            effect="the file is read, and deepspeed.initialize then fails",
            fix='add "params": {}',
        )


def warmup_steps(document: Document, job: Job) -> Iterator[Hit]:
    """A warm-up of no steps, or of a number of steps that is not whole."""
    member = document.member(f"{PARAMS}.warmup_num_steps")
    if member is None or scheduler_type(document) not in WARMUPS or number(member.node.data) is None:
        return
    value, steps = member.node.data, whole(member.node.data)
    if steps is None or steps <= 0:
        yield Hit(
            at=member.node,
            path=f"{PARAMS}.warmup_num_steps",
            message=f"warmup_num_steps is {shown(value)}; it must be a whole number above 0",
            effect="the file is read, and deepspeed.initialize then fails",
            fix="write 1 for no warm-up (DeepSpeed makes 2 of it)",
        )
    elif isinstance(value, float):
        written = document.text[member.node.start : member.node.end]
        yield Hit(
            at=member.node,
            path=f"{PARAMS}.warmup_num_steps",
            message=f"warmup_num_steps is written as the real number {written}",
            effect="the Trainer and Accelerate hand DeepSpeed a float, which it refuses; DeepSpeed alone "
            "reads it as whole",
            fix=f"write {steps}",
            severity="warning",
        )


def too_short(document: Document, job: Job) -> Iterator[Hit]:
    """A schedule that ends before its warm-up."""
    member = document.member(f"{PARAMS}.total_num_steps")
    total, warm = (
        whole(document.value(f"{PARAMS}.total_num_steps")),
        whole(document.value(f"{PARAMS}.warmup_num_steps", 1000)),
    )
    if (
        member is not None
        and scheduler_type(document) in WARMUPS
        and total is not None
        and warm is not None
        and total < warm
    ):
        yield Hit(
            at=member.node,
            path=f"{PARAMS}.total_num_steps",
            message=f"the schedule has {total} steps and its warm-up {warm}",
            effect="after that many steps the learning rate is still rising; after the warm-up it drops to its last "
            "value at once",
            fix="count both in optimizer steps, as DeepSpeed does: ceil(samples / (micro x accumulation x "
            "ranks)) x epochs",
            url="https://github.com/deepspeedai/DeepSpeed/issues/633",
        )


def logarithmic_warmup(document: Document, job: Job) -> Iterator[Hit]:
    """A warm-up whose form is not written, which is logarithmic."""
    member, kind = document.member("scheduler.type"), document.value(f"{PARAMS}.warmup_type")
    if member is None or scheduler_type(document) not in WARMUPS:
        return
    if kind is None:
        yield Hit(
            at=member.node,
            path=f"{PARAMS}.warmup_type",
            message="warmup_type is not written",
            effect="the learning rate rises with the logarithm of the step: half of it is reached after the "
            "square root of the warm-up",
            fix='add "warmup_type": "linear", which the Trainer\'s own schedulers do, or "log" to say so',
        )


def hidden_peak(document: Document, job: Job) -> Iterator[Hit]:
    """WarmupDecayLR without a peak, which is 0.001 whatever the optimizer says."""
    member = document.member("scheduler.type")
    rate = document.value("optimizer.params.lr")
    if (
        member is None
        or scheduler_type(document) != "WarmupDecayLR"
        or document.value(f"{PARAMS}.warmup_max_lr", 0) is None
    ):
        return
    if not document.has(f"{PARAMS}.warmup_max_lr") and number(rate) != 0.001:
        yield Hit(
            at=member.node,
            path=f"{PARAMS}.warmup_max_lr",
            message="WarmupDecayLR without warmup_max_lr",
            effect="the learning rate peaks at 0.001"
            + (
                f"; the optimizer's lr {shown(rate)} is never used"
                if rate is not None
                else ", whatever the optimizer is given"
            ),
            fix=f'add "warmup_max_lr": {shown(rate) if rate is not None else "the peak"}',
            severity=None if rate is not None else "warning",
        )


def two_rates(document: Document, job: Job) -> Iterator[Hit]:
    """An optimizer and a scheduler that name two learning rates."""
    member = document.member(f"{PARAMS}.warmup_max_lr")
    peak, rate = document.value(f"{PARAMS}.warmup_max_lr"), document.value("optimizer.params.lr")
    if member is None or scheduler_type(document) not in ("WarmupLR", "WarmupDecayLR"):
        return
    begins_at = number(document.value(f"{PARAMS}.last_batch_iteration"))
    if begins_at is not None and begins_at >= 0:
        # Begun there it sets no rate at first, and the first step is taken with the optimizer's.
        return
    if number(peak) is not None and number(rate) is not None and peak != rate:
        yield Hit(
            at=member.node,
            path=f"{PARAMS}.warmup_max_lr",
            message=f"the scheduler peaks at {shown(peak)} and the optimizer's lr is {shown(rate)}",
            effect=f"the scheduler wins: {shown(rate)} is never used",
            fix="write the same value in both places",
        )


RULES = (
    Rule(
        code="DS501",
        name="unknown-scheduler",
        severity="error",
        reads="deepspeed",
        check=unknown_scheduler,
        summary="A scheduler that neither DeepSpeed nor torch has.",
    ),
    Rule(
        code="DS502",
        name="scheduler-parameters",
        severity="error",
        reads="deepspeed",
        check=unknown_parameters,
        summary="A parameter that the scheduler does not take, or one that it needs.",
    ),
    Rule(
        code="DS503",
        name="warmup-steps",
        severity="error",
        reads="deepspeed",
        check=warmup_steps,
        since="0.19.3",
        summary="A warm-up of no steps, or not of whole steps.",
    ),
    Rule(
        code="DS504",
        name="schedule-shorter-than-warmup",
        severity="warning",
        reads="deepspeed",
        check=too_short,
        summary="A schedule that ends before its warm-up.",
    ),
    Rule(
        code="DS505",
        name="logarithmic-warmup",
        severity="warning",
        reads="deepspeed",
        check=logarithmic_warmup,
        url="https://deepspeed.readthedocs.io/en/latest/schedulers.html",
        summary="A warm-up that is logarithmic because nothing else is written.",
    ),
    Rule(
        code="DS506",
        name="hidden-peak",
        severity="error",
        reads="deepspeed",
        check=hidden_peak,
        url="https://deepspeed.readthedocs.io/en/latest/schedulers.html",
        summary="WarmupDecayLR without warmup_max_lr, which peaks at 0.001.",
    ),
    Rule(
        code="DS507",
        name="two-learning-rates",
        severity="error",
        reads="deepspeed",
        check=two_rates,
        summary="An optimizer and a scheduler that name two learning rates.",
    ),
)
