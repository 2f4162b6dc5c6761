"""Turns the Trainer's arguments into recipe keys, beside a DeepSpeed JSON or alone."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from typing import Any

from gradwire.importing.accelerate_table import COMPILERS
from gradwire.importing.entry import Carried, Entry, entry_of, entry_of_passed
from gradwire.targets.effective import Effective, Passed, Reading
from gradwire.targets.filling import TRAINER_FILLED
from gradwire.targets.job import Job
from gradwire.targets.tree import Document

# Arguments that a DeepSpeed JSON takes the place of.
_WITHOUT_DEEPSPEED: tuple[tuple[str, str, Any], ...] = (
    ("per_device_train_batch_size", "training.batch_size_per_gpu", 8),
    ("gradient_accumulation_steps", "training.gradient_accumulation", 1),
)
_WITHOUT_OPTIMIZER: tuple[tuple[str, str, Any], ...] = (
    ("learning_rate", "training.learning_rate", 5e-5),
    ("weight_decay", "training.weight_decay", 0.0),
)
_DDP: tuple[tuple[str, str], ...] = (
    ("ddp_bucket_cap_mb", "communication.overlap.bucket_cap_mb"),
    ("ddp_find_unused_parameters", "communication.overlap.find_unused_parameters"),
    ("ddp_static_graph", "communication.overlap.static_graph"),
)
TRAINER_DEFAULTS: dict[str, Any] = {
    "activation_checkpointing": False,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "average_tokens_across_devices": True,
    "bf16": False,
    "fp16": False,
    "gradient_accumulation_steps": 1,
    "learning_rate": 5e-5,
    "lr_scheduler_type": "linear",
    "max_grad_norm": 1.0,
    "max_steps": -1,
    "optim": "adamw_torch_fused",
    "per_device_train_batch_size": 8,
    "seed": 42,
    "torch_compile": False,
    "torch_compile_backend": "inductor",
    "torch_compile_mode": "default",
    "use_cpu": False,
    "warmup_steps": 0,
    "weight_decay": 0.0,
}
"""Defaults of transformers.TrainingArguments 5.24 for what a recipe says."""

_OPTIMIZERS = {"adamw_torch": "AdamW", "adamw_torch_fused": "AdamW", "sgd": "SGD"}
_SCHEDULES = {
    "constant": "constant",
    "constant_with_warmup": "constant",
    "linear": "linear",
    "polynomial": "linear",
    "cosine": "cosine",
    "cosine_with_min_lr": "cosine",
}
_NO_DECAY = "the Trainer decays neither biases nor norms; a recipe decays every parameter"


def carry_trainer(job: Job, deepspeed: Reading | None) -> Iterator[Carried]:
    """Yield the recipe keys that the Trainer's arguments settle and that no other file does."""
    trainer = job.trainer
    if trainer is None:
        return
    yield _carried(trainer, "seed", "training.seed", 42)
    yield from _compilation(job, trainer)
    if trainer.value("use_cpu") is True:
        yield _carried(trainer, "use_cpu", "training.device", True, value="cpu")
    yield from _checkpointing(trainer)
    weighs = _argument(trainer, "average_tokens_across_devices", True)
    yield Carried(
        path="training.loss_weighting", value="token" if weighs.value is True else "micro-batch", sources=(weighs,)
    )
    steps = trainer.value("max_steps")
    if isinstance(steps, int) and steps > 0:
        yield _carried(trainer, "max_steps", "training.max_steps", steps)
    if deepspeed is None:
        for name, path, default in _WITHOUT_DEEPSPEED:
            yield _carried(trainer, name, path, default)
        clip = _argument(trainer, "max_grad_norm", 1.0)
        yield Carried(path="training.gradient_clip", value=clip.value or None, sources=(clip,))
        if job.accelerate is None:
            yield _precision(trainer)
            yield from _ddp(trainer)
    if deepspeed is None or "optimizer.type" not in deepspeed.values:
        yield from _optimizer(trainer)
    if deepspeed is None or "scheduler.type" not in deepspeed.values:
        yield from _schedule(trainer)


def trainer_entries(job: Job, carried: Iterable[Carried], filled: Iterable[Effective]) -> Iterator[Entry]:
    """Yield what became of each of the Trainer's arguments; `filled` are the values that "auto" was replaced by."""
    trainer, carried = job.trainer, tuple(carried)
    if trainer is None:
        return
    used = {
        source.member.start: each
        for each in carried
        for source in each.sources
        if source.document is trainer and source.member is not None
    }
    arguments = {path: argument for path, argument, _ in TRAINER_FILLED}
    taken = {arguments.get(each.path) for each in filled}
    if any(each.path == "optimizer.params.betas" for each in filled):
        taken |= {"adam_beta1", "adam_beta2"}
    carried_paths = {each.path for each in carried}
    for name, member in (trainer.root.members or {}).items():
        source = Effective(path=name, value=member.node.data, origin="written", document=trainer, member=member)
        if member.start in used:
            yield entry_of(source, "carried", into=used[member.start].path)
        elif name in taken:
            yield entry_of(source, "carried", into=None, note='it takes the place of "auto" in the DeepSpeed JSON')
        elif reason := _refusal(trainer, name, carried_paths):
            yield entry_of_passed(Passed(path=name, document=trainer, member=member, reason=reason), "refused")
        elif name == "deepspeed":
            yield entry_of(source, "carried", into="parallelism.data.strategy", note="names the DeepSpeed JSON")
        else:
            reason = "it stays an argument of the Trainer; no key of a recipe"
            if name in arguments.values():
                reason = "it does not arrive: the DeepSpeed JSON decides"
            yield entry_of_passed(Passed(path=name, document=trainer, member=member, reason=reason), "idle")


def _argument(trainer: Document, name: str, default: Any) -> Effective:
    member = trainer.member(name)
    if member is None:
        return Effective(path=name, value=default, origin="default", note="the Trainer's default")
    return Effective(path=name, value=member.node.data, origin="written", document=trainer, member=member)


def _carried(
    trainer: Document, name: str, path: str, default: Any, note: str | None = None, *, value: Any = None
) -> Carried:
    source = _argument(trainer, name, default)
    return Carried(path=path, value=source.value if value is None else value, sources=(source,), note=note)


def _refusal(trainer: Document, name: str, carried: Container[str]) -> str | None:
    """Why an argument that decides how the run trains is none of a recipe's; None: it does not, or is one."""
    value = trainer.value(name)
    match name:
        case "optim" if "training.optimizer" not in carried:
            return f"a recipe's optimizers are {', '.join(sorted(set(_OPTIMIZERS.values())))} for the Trainer"
        case "lr_scheduler_type" if "training.scheduler.type" not in carried:
            return f"a recipe's schedules are those of {', '.join(_SCHEDULES)}"
        case "torch_compile_backend" if value and "training.compile_backend" not in carried:
            return f"a recipe compiles with {', '.join(COMPILERS)}"
        case "fsdp" if value:
            return "import an Accelerate file that starts FSDP, or set parallelism.data by hand"
    return None


def _compilation(job: Job, trainer: Document) -> Iterator[Carried]:
    """A compiler or a mode alone switches it on; beside an Accelerate file that compiles, that one counts otherwise."""
    names = ("torch_compile", "torch_compile_backend", "torch_compile_mode")
    switches = [_argument(trainer, name, None) for name in names if trainer.value(name)]
    if not switches:
        if job.accelerate is None:
            yield _carried(trainer, "torch_compile", "training.compile", False)
        return
    compiler = _argument(trainer, "torch_compile_backend", None)
    if (compiler.value or "inductor") not in COMPILERS:
        return
    yield Carried(path="training.compile", value=True, sources=tuple(switches))
    yield Carried(path="training.compile_backend", value=compiler.value or "inductor", sources=(compiler,))
    mode = _argument(trainer, "torch_compile_mode", None)
    yield Carried(path="training.compile_mode", value=mode.value or "default", sources=(mode,))
    if job.accelerate is None:
        whole = Effective(path="torch_compile", value=False, origin="default", note="the Trainer's default")
        yield Carried(path="training.compile_regional", value=False, sources=(whole,))


def _checkpointing(trainer: Document) -> Iterator[Carried]:
    # The old name is read only where the new one is not written.
    name = "activation_checkpointing"
    if trainer.value(name) is None:
        name = "gradient_checkpointing"
    switch = _argument(trainer, name, False)
    yield Carried(path="training.gradient_checkpointing", value=switch.value, sources=(switch,))
    options = _argument(trainer, f"{name}_kwargs", None)
    if switch.value is True and isinstance(options.value, dict) and options.value.get("use_reentrant") is True:
        yield Carried(path="training.gradient_checkpointing_reentrant", value=True, sources=(options,))


def _ddp(trainer: Document) -> Iterator[Carried]:
    for name, path in _DDP:
        written = _argument(trainer, name, None)
        if written.value is not None:
            yield Carried(path=path, value=written.value, sources=(written,))


def _momentum(trainer: Document) -> Iterator[Carried]:
    options = _argument(trainer, "optim_args", "")
    found = re.fullmatch(r"\s*momentum\s*=\s*([0-9.eE+-]+)\s*", str(options.value))
    try:
        value = float(found[1]) if found else None
    except ValueError:
        return
    if value is not None:
        yield Carried(path="training.momentum", value=value, sources=(options,))


def _precision(trainer: Document) -> Carried:
    for name in ("bf16", "fp16"):
        source = _argument(trainer, name, False)
        if source.value is True:
            return Carried(path="training.precision", value=f"{name}-mixed", sources=(source,))
    sources = (_argument(trainer, "bf16", False), _argument(trainer, "fp16", False))
    return Carried(path="training.precision", value="fp32", sources=sources)


def _schedule(trainer: Document) -> Iterator[Carried]:
    kind, steps = _argument(trainer, "lr_scheduler_type", "linear"), _argument(trainer, "warmup_steps", 0)
    options, peak = _argument(trainer, "lr_scheduler_kwargs", {}), trainer.value("learning_rate", 5e-5)
    given = options.value if isinstance(options.value, dict) else {}
    if not isinstance(kind.value, str) or kind.value not in _SCHEDULES:
        return
    ratio = None
    match kind.value:
        case "polynomial":
            lowest = given.get("lr_end", 1e-7)
            if given.get("power", 1.0) != 1.0 or not _is_number(lowest) or not _is_number(peak) or not peak:
                return
            ratio = lowest / peak
        case "cosine_with_min_lr":
            ratio = given.get("min_lr_rate")
            if not _is_number(ratio):
                return
    yield Carried(path="training.scheduler.type", value=_SCHEDULES[kind.value], sources=(kind,))
    if ratio is not None:
        yield Carried(path="training.scheduler.min_ratio", value=ratio, sources=(options,))
    if isinstance(steps.value, int) and kind.value != "constant":
        yield Carried(path="training.scheduler.warmup_steps", value=steps.value, sources=(steps,))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _optimizer(trainer: Document) -> Iterator[Carried]:
    optim = _argument(trainer, "optim", "adamw_torch_fused")
    kind = _OPTIMIZERS.get(str(optim.value))
    if kind is None:
        return
    if kind == "SGD":
        yield from _momentum(trainer)
    yield Carried(path="training.optimizer", value=kind, sources=(optim,))
    for name, path, default in _WITHOUT_OPTIMIZER:
        decays = name == "weight_decay" and trainer.value(name, 0) not in (0, 0.0)
        yield _carried(trainer, name, path, default, _NO_DECAY if decays else None)
    if kind == "AdamW":
        betas = (_argument(trainer, "adam_beta1", 0.9), _argument(trainer, "adam_beta2", 0.999))
        yield Carried(path="training.betas", value=[each.value for each in betas], sources=betas)
        yield _carried(trainer, "adam_epsilon", "training.epsilon", 1e-8)
