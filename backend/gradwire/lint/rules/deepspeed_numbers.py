"""Rules for the numbers among an optimizer's parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gradwire.lint.rule import Hit, Rule, shown
from gradwire.lint.rules.deepspeed_optimizer import PARAMS
from gradwire.targets.deepspeed_parameters import optimizer_section, optimizer_type
from gradwire.targets.deepspeed_readings import is_on, number
from gradwire.targets.job import Job
from gradwire.targets.tree import Document

_NOT_NEGATIVE = ("lr", "eps", "weight_decay", "momentum", "alpha", "rho", "lr_decay", "momentum_decay")
LATER = "the file is read, and deepspeed.initialize then fails"


def parameters_out_of_range(document: Document, job: Job) -> Iterator[Hit]:
    """Numbers that torch's optimizers refuse, and DeepSpeed's own take as they are."""
    checks = _is_of_torch(document)
    for name, value in document.mapping(PARAMS).items():
        member = document.member(f"{PARAMS}.{name}")
        wrong = _wrong_with(name, value)
        if member is None or wrong is None:
            continue
        malformed = isinstance(value, list) and len(value) != 2
        yield Hit(
            at=member.node,
            path=f"{PARAMS}.{name}",
            message=f"{name} is {shown(value)}; {wrong}",
            effect=LATER if checks else "the first step fails" if malformed else "DeepSpeed does not check it",
            fix=f"write {'two numbers' if malformed else 'a value within these limits'}",
            severity=None if checks or malformed else "warning",
        )


def _wrong_with(name: str, value: Any) -> str | None:
    if name == "betas" and isinstance(value, list):
        numbers = [number(each) for each in value]
        if len(value) != 2:
            return "an optimizer takes two"
        return None if all(each is not None and 0 <= each < 1 for each in numbers) else "they must be from 0 to below 1"
    size = number(value) if name in _NOT_NEGATIVE else None
    return "it must not be below 0" if size is not None and size < 0 else None


def _is_of_torch(document: Document) -> bool:
    """Whether torch makes the optimizer; of DeepSpeed's own names Adagrad is torch's too, away from the CPU."""
    name = optimizer_type(document)
    if name in optimizer_section()["x-types"]["own"]:
        return name == "adagrad" or (name in ("adam", "adamw") and is_on(document, f"{PARAMS}.torch_adam"))
    return name in optimizer_section()["x-types"]["torch"]


def nesterov_without_momentum(document: Document, job: Job) -> Iterator[Hit]:
    """Nesterov's momentum of SGD without a momentum, or with dampening."""
    member, params = document.member(f"{PARAMS}.nesterov"), document.mapping(PARAMS)
    has_momentum = (number(params.get("momentum", 0)) or 0) > 0 and not params.get("dampening")
    is_sgd = document.value("optimizer.type") == "SGD"
    if member is not None and is_sgd and is_on(document, f"{PARAMS}.nesterov") and not has_momentum:
        yield Hit(
            at=member,
            path=f"{PARAMS}.nesterov",
            message="nesterov needs a momentum and no dampening",
            effect=LATER,
            fix="add momentum, or remove nesterov",
        )


def divisors_of_zero(document: Document, job: Job) -> Iterator[Hit]:
    """Zeros that something is divided by."""
    alone = job.accelerate is None and job.trainer is None
    cycles = document.value("scheduler.type") == "OneCycle"
    cases = (
        # Accelerate and the Trainer write their own.
        ("steps_per_print", alone, "write null for no such lines"),
        ("gradient_predivide_factor", True, "write 1.0, or remove it"),
        (
            "scheduler.params.cycle_first_step_size",
            cycles,
            "write the steps up",
        ),
    )
    for path, counts, fix in cases:
        member = document.member(path)
        if member is not None and counts and number(member.node.data) == 0:
            yield Hit(
                at=member.node,
                path=path,
                message=f"{member.name} is 0, and DeepSpeed divides by it",
                effect="the file is read, and the run fails in its first step at the latest",
                fix=fix,
            )


RULES = (
    Rule(
        code="DS412",
        name="parameter-out-of-range",
        severity="error",
        reads="deepspeed",
        check=parameters_out_of_range,
        summary="A number that no optimizer is meant to take.",
    ),
    Rule(
        code="DS413",
        name="nesterov-without-momentum",
        severity="error",
        reads="deepspeed",
        check=nesterov_without_momentum,
        summary="Nesterov's momentum without a momentum.",
    ),
    Rule(
        code="DS415",
        name="division-by-zero",
        severity="error",
        reads="deepspeed",
        check=divisors_of_zero,
        summary="A 0 that DeepSpeed divides by.",
    ),
)
