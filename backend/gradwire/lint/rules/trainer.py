"""Rules for the Trainer's arguments, alone and beside the DeepSpeed JSON that they name."""

from __future__ import annotations

from collections.abc import Iterator

from gradwire.lint.rule import Hit, Rule, shown
from gradwire.targets.deepspeed_readings import whole
from gradwire.targets.filling import TRAINER_FILLED
from gradwire.targets.job import Job
from gradwire.targets.tree import Document

MISMATCH_URL = "https://huggingface.co/docs/transformers/deepspeed#deepspeed-and-trainer-parameters"


def mismatches(document: Document, job: Job) -> Iterator[Hit]:
    """Values that stand in both files and differ; the Trainer stops at them."""
    trainer = job.trainer
    if trainer is None:
        return
    for path, argument, default in TRAINER_FILLED:
        member = document.member(path)
        value = member.node.data if member else None
        given = trainer.value(argument, default)
        if member is None or value in (None, "auto") or value == given:
            continue
        written = trainer.has(argument)
        yield Hit(
            at=member.node,
            path=path,
            message=f"{path} is {shown(value)}, and the Trainer's {argument} is {shown(given)}"
            + ("" if written else " by default"),
            effect="the Trainer stops: values that mismatch TrainingArguments",
            fix='write "auto"',
            severity=None if written else "warning",
        )
    yield from _betas(document, trainer)
    yield from _train_batch(document, job, trainer)


def _betas(document: Document, trainer: Document) -> Iterator[Hit]:
    member = document.member("optimizer.params.betas")
    given = [trainer.value("adam_beta1", 0.9), trainer.value("adam_beta2", 0.999)]
    if member is not None and member.node.data not in (None, "auto", given):
        yield Hit(
            at=member.node,
            path="optimizer.params.betas",
            message=f"betas are {shown(member.node.data)}, and the Trainer's adam_beta1 and adam_beta2 are {given}",
            effect="the Trainer stops: values that mismatch TrainingArguments",
            fix='write "auto"',
            severity=None if trainer.has("adam_beta1") or trainer.has("adam_beta2") else "warning",
        )


def _train_batch(document: Document, job: Job, trainer: Document) -> Iterator[Hit]:
    member = document.member("train_batch_size")
    size, world = whole(member.node.data) if member else None, job.num_processes
    micro, steps = (
        whole(trainer.value("per_device_train_batch_size", 8)),
        whole(trainer.value("gradient_accumulation_steps", 1)),
    )
    if (
        member is None
        or size is None
        or world is None
        or micro is None
        or steps is None
        or size == micro * steps * world
    ):
        return
    yield Hit(
        at=member.node,
        path="train_batch_size",
        message=f"train_batch_size is {size}, and the Trainer's {micro} x {steps} on {world} processes is "
        f"{micro * steps * world}",
        effect="the Trainer stops: values that mismatch TrainingArguments",
        fix=f'write "auto", or {micro * steps * world}',
    )


def lost_arguments(document: Document, job: Job) -> Iterator[Hit]:
    """Arguments that do not arrive because the JSON lacks the key."""
    trainer = job.trainer
    if trainer is None:
        return
    cases = (
        (
            "gradient_clipping",
            "max_grad_norm",
            1.0,
            "DeepSpeed clips at 1.0",
            "https://github.com/huggingface/transformers/issues/37566",
        ),
        (
            "gradient_accumulation_steps",
            "gradient_accumulation_steps",
            1,
            "Accelerate writes 1 into it: gradients are not accumulated",
            "https://github.com/huggingface/accelerate/issues/1970",
        ),
    )
    for path, argument, default, effect, url in cases:
        given = trainer.value(argument, default)
        if not document.has(path) and given != default:
            yield Hit(
                at=document.root,
                path=path,
                message=f"{path} is not written, and the Trainer's {argument} is {shown(given)}",
                effect=f"the argument does not arrive; {effect}",
                fix=f'add "{path}": "auto"',
                url=url,
            )
    params = document.mapping("optimizer.params")
    if document.has("optimizer"):
        for name, argument, default in (
            ("lr", "learning_rate", 5e-5),
            ("weight_decay", "weight_decay", 0.0),
            ("eps", "adam_epsilon", 1e-8),
        ):
            given = trainer.value(argument, default)
            hidden = {"lr": 0.001, "weight_decay": 0, "eps": 1e-8}[name]
            if name not in params and trainer.has(argument) and given != hidden:
                yield Hit(
                    at=document.member("optimizer") or document.root,
                    path=f"optimizer.params.{name}",
                    message=f"the optimizer has no {name}, and the Trainer's {argument} is {shown(given)}",
                    effect=f"the argument does not arrive; DeepSpeed uses {shown(hidden)}",
                    fix=f'add "{name}": "auto"',
                )


def two_schedulers(document: Document, job: Job) -> Iterator[Hit]:
    """A scheduler in the JSON and another one among the arguments."""
    trainer, member = job.trainer, document.member("scheduler.type")
    wanted = trainer.value("lr_scheduler_type", "linear") if trainer else None
    same = {"WarmupLR": "constant_with_warmup", "WarmupDecayLR": "linear", "WarmupCosineLR": "cosine"}
    if trainer is None or member is None or same.get(str(member.node.data)) == wanted:
        return
    yield Hit(
        at=member.node,
        path="scheduler.type",
        message=f"scheduler {member.node.data}, and the Trainer's lr_scheduler_type is {wanted}"
        + ("" if trainer.has("lr_scheduler_type") else " by default"),
        effect=f"the JSON wins: {member.node.data} is used and lr_scheduler_type is ignored",
        fix="remove the scheduler section, or name the same schedule in both",
        severity=None if trainer.has("lr_scheduler_type") else "warning",
    )


def two_optimizers(document: Document, job: Job) -> Iterator[Hit]:
    """An optimizer in the JSON and optim among the arguments."""
    trainer, member = job.trainer, document.member("optimizer.type")
    optim = trainer.value("optim") if trainer else None
    if trainer is not None and member is not None and isinstance(optim, str) and not optim.startswith("adamw"):
        yield Hit(
            at=member.node,
            path="optimizer.type",
            message=f"optimizer {member.node.data}, and the Trainer's optim is {optim}",
            effect=f"the JSON wins: {member.node.data} is used and optim is ignored",
            fix="remove the optimizer section, or optim",
        )


def two_strategies(document: Document, job: Job) -> Iterator[Hit]:
    """deepspeed and fsdp among the arguments."""
    member = document.member("fsdp")
    if member is not None and member.node.data and document.value("deepspeed"):
        yield Hit(
            at=member,
            path="fsdp",
            message="fsdp and deepspeed are both given",
            effect="the Trainer refuses to start",
            fix="keep one",
        )


def two_trainer_precisions(document: Document, job: Job) -> Iterator[Hit]:
    """fp16 and bf16 among the arguments."""
    member = document.member("bf16")
    if member is not None and member.node.data is True and document.value("fp16") is True:
        yield Hit(
            at=member,
            path="bf16",
            message="fp16 and bf16 are both true",
            effect="the Trainer refuses to start: at most one of fp16 and bf16",
            fix="keep one",
        )


_ACCELERATOR_KEYS = (
    "split_batches", "dispatch_batches", "even_batches", "use_seedable_sampler", "non_blocking",
    "gradient_accumulation_kwargs", "use_configured_state",
)  # fmt: skip


def accelerator_config(document: Document, job: Job) -> Iterator[Hit]:
    """Keys of accelerator_config that the Trainer refuses, and a second accumulation."""
    member = document.member("accelerator_config")
    for name, key in ((member.node.members if member else None) or {}).items():
        if name not in _ACCELERATOR_KEYS:
            yield Hit(
                at=key,
                path=f"accelerator_config.{name}",
                message=f"unknown key {name} in accelerator_config",
                effect="the Trainer refuses to start",
                fix=f"it takes {', '.join(_ACCELERATOR_KEYS)}",
            )
    steps = document.member("accelerator_config.gradient_accumulation_kwargs.num_steps")
    accumulation = whole(document.value("gradient_accumulation_steps", 1))
    if steps is not None and accumulation is not None and accumulation > 1:
        yield Hit(
            at=steps,
            path="accelerator_config.gradient_accumulation_kwargs.num_steps",
            message=f"num_steps beside gradient_accumulation_steps {accumulation}",
            effect="the Trainer refuses to start",
            fix="remove num_steps",
        )


def split_batches(document: Document, job: Job) -> Iterator[Hit]:
    """A batch that is split over processes and does not divide by them."""
    member = document.member("accelerator_config.split_batches")
    size, world = whole(document.value("per_device_train_batch_size", 8)), job.num_processes
    if member is not None and member.node.data is True and size is not None and world is not None and size % world:
        yield Hit(
            at=member,
            path="accelerator_config.split_batches",
            message=f"split_batches with a batch of {size} and {world} processes",
            effect="Accelerate stops: the batch must be a multiple of the number of processes",
            fix=f"use a batch of {-(-size // world) * world}, or set split_batches to false",
        )


RULES = (
    Rule(
        code="TR101",
        name="mismatch",
        severity="error",
        reads="deepspeed",
        needs=("trainer",),
        check=mismatches,
        url=MISMATCH_URL,
        summary="A value that differs between the DeepSpeed JSON and the Trainer's arguments.",
    ),
    Rule(
        code="TR102",
        name="lost-argument",
        severity="error",
        reads="deepspeed",
        needs=("trainer",),
        check=lost_arguments,
        summary="An argument that does not arrive because the JSON lacks the key.",
    ),
    Rule(
        code="TR103",
        name="two-schedulers",
        severity="error",
        reads="deepspeed",
        needs=("trainer",),
        check=two_schedulers,
        url="https://github.com/axolotl-ai-cloud/axolotl/issues/909",
        summary="A scheduler in the JSON and another one among the arguments.",
    ),
    Rule(
        code="TR104",
        name="two-optimizers",
        severity="error",
        reads="deepspeed",
        needs=("trainer",),
        check=two_optimizers,
        summary="An optimizer in the JSON and another one among the arguments.",
    ),
    Rule(
        code="TR201",
        name="two-strategies",
        severity="error",
        reads="trainer",
        check=two_strategies,
        summary="deepspeed and fsdp among the arguments.",
    ),
    Rule(
        code="TR202",
        name="two-precisions",
        severity="error",
        reads="trainer",
        check=two_trainer_precisions,
        summary="fp16 and bf16 among the arguments.",
    ),
    Rule(
        code="TR203",
        name="accelerator-config",
        severity="error",
        reads="trainer",
        check=accelerator_config,
        summary="accelerator_config that the Trainer refuses.",
    ),
    Rule(
        code="TR204",
        name="split-batches",
        severity="error",
        reads="trainer",
        check=split_batches,
        url="https://github.com/huggingface/accelerate/issues/358",
        summary="A split batch that does not divide by the processes.",
    ),
)
