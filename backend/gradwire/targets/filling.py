"""What takes the place of "auto" in a DeepSpeed file: what the Trainer or Accelerate puts there, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from gradwire.targets.effective import Origin
from gradwire.targets.job import Job
from gradwire.targets.tree import Document

Loader = Literal["deepspeed", "accelerate", "trainer"]
"""Who hands the file to DeepSpeed."""

TRAINER_FILLED: tuple[tuple[str, str, Any], ...] = (
    ("train_micro_batch_size_per_gpu", "per_device_train_batch_size", 8),
    ("gradient_accumulation_steps", "gradient_accumulation_steps", 1),
    ("gradient_clipping", "max_grad_norm", 1.0),
    ("optimizer.params.lr", "learning_rate", 5e-5),
    ("optimizer.params.eps", "adam_epsilon", 1e-8),
    ("optimizer.params.weight_decay", "weight_decay", 0.0),
    ("scheduler.params.warmup_max_lr", "learning_rate", 5e-5),
    ("fp16.enabled", "fp16", False),
    ("bf16.enabled", "bf16", False),
)
"""Key of the JSON -> argument and its default; transformers.integrations.deepspeed compares exactly these."""

# What accelerate's prepare() puts there; the first two come from the script's loader and Accelerator.
_ACCELERATE_FILLED: dict[str, tuple[Any, str]] = {
    "train_micro_batch_size_per_gpu": (1, "Accelerate takes the batch size of the loader given to prepare()"),
    "gradient_accumulation_steps": (1, "Accelerate takes that of Accelerator()"),
    "gradient_clipping": (1.0, "Accelerate's prepare()"),
    "optimizer.params.lr": (0.001, "Accelerate takes that of the script's DummyOptim"),
    "optimizer.params.weight_decay": (0.0, "Accelerate takes that of the script's DummyOptim"),
    "scheduler.params.warmup_max_lr": (0.001, "Accelerate takes the lr of the script's DummyOptim"),
}
_TRAINER_ALONE = ("optimizer.params.betas", "optimizer.params.eps")
_KNOWN_HERE = ("gradient_clipping",)

# What accelerate.DeepSpeedPlugin puts in the place of "auto", under the Trainer too.
PLUGIN_FILLED: dict[str, Any] = {
    "zero_optimization.stage": 2,
    "zero_optimization.offload_optimizer.device": "none",
    "zero_optimization.offload_param.device": "none",
    "zero_optimization.offload_optimizer.nvme_path": "none",
    "zero_optimization.offload_param.nvme_path": "none",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save": False,
}

_OF_HIDDEN_SIZE: dict[str, Callable[[int], int]] = {
    "zero_optimization.reduce_bucket_size": lambda size: size * size,
    "zero_optimization.stage3_prefetch_bucket_size": lambda size: int(0.9 * size * size),
    "zero_optimization.stage3_param_persistence_threshold": lambda size: 10 * size,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Filled:
    """What stands in the place of "auto", where it comes from, and in words; `value` None: nothing, as if absent."""

    value: Any
    origin: Origin
    note: str


def loader_of(document: Document, job: Job) -> Loader:
    """Who hands a DeepSpeed file over; the Trainer where nothing says so and the file leaves values to it.

    A file that leaves to it what Accelerate does not fill is for a Trainer, also under `accelerate launch`.
    """
    if job.trainer is not None or any(document.value(path) == "auto" for path in _TRAINER_ALONE):
        return "trainer"
    if job.accelerate is not None:
        return "accelerate"
    needed = (path for path, _, _ in TRAINER_FILLED)
    others = ("train_batch_size", "scheduler.params.total_num_steps")
    autos = (*needed, *others, "scheduler.params.warmup_num_steps", "scheduler.params.warmup_min_lr")
    return "trainer" if any(document.value(path) == "auto" for path in autos) else "deepspeed"


def job_precision(job: Job) -> str | None:
    """What the launch says of the precision: no, fp16, bf16, fp8, or None."""
    if job.trainer is not None:
        for name in ("bf16", "fp16"):
            if job.trainer.value(name) is True:
                return name
        return "no"
    return job.mixed_precision


def fill(path: str, job: Job, loader: Loader, *, stage: int) -> Filled | None:
    """What takes the place of "auto" at a path; None: nobody fills it."""
    if path == "train_batch_size" and loader != "deepspeed":
        return Filled(value=None, origin="derived", note="worked out of the other batch sizes")
    if path in _OF_HIDDEN_SIZE and loader != "deepspeed":
        return _of_hidden_size(path, job, stage)
    if path in PLUGIN_FILLED and loader != "deepspeed":
        return Filled(value=PLUGIN_FILLED[path], origin="filled", note="Accelerate and the Trainer put it there")
    if path in ("fp16.enabled", "bf16.enabled") and loader != "deepspeed":
        return _precision(path, job)
    if loader == "trainer":
        return _from_trainer(path, job)
    if loader == "accelerate" and path in _ACCELERATE_FILLED:
        value, note = _ACCELERATE_FILLED[path]
        return Filled(value=value, origin="filled" if path in _KNOWN_HERE else "assumed", note=note)
    return None


def _of_hidden_size(path: str, job: Job, stage: int) -> Filled | None:
    if stage != 3 and path != "zero_optimization.reduce_bucket_size":
        return None
    name = path.rpartition(".")[2]
    if job.facts.hidden_size is not None:
        value = _OF_HIDDEN_SIZE[path](job.facts.hidden_size)
        return Filled(value=value, origin="filled", note=f"of a model with hidden_size {job.facts.hidden_size}")
    note = f"the Trainer works {name} out of the model's hidden_size, which is not known here (--hidden-size)"
    return Filled(value=None, origin="assumed", note=note)


def _precision(path: str, job: Job) -> Filled:
    wanted, name = job_precision(job), path.partition(".")[0]
    on = wanted == name or (wanted == "fp8" and name == "bf16")
    if wanted is None:
        return Filled(
            value=False, origin="assumed", note="the precision of the launch is not known (--mixed-precision)"
        )
    source = f"the Trainer's {name}" if job.trainer is not None else f"mixed_precision {wanted or 'no'}"
    return Filled(value=on, origin="filled", note=source)


def _from_trainer(path: str, job: Job) -> Filled | None:
    if path == "optimizer.params.betas":
        one, two = _argument(job, "adam_beta1", 0.9), _argument(job, "adam_beta2", 0.999)
        origin: Origin = "filled" if job.trainer is not None else "assumed"
        return Filled(value=[one.value, two.value], origin=origin, note="the Trainer's adam_beta1 and adam_beta2")
    if path == "scheduler.params.warmup_min_lr":
        return Filled(value=0, origin="filled", note="the Trainer puts it there")
    if path == "scheduler.params.warmup_num_steps":
        return _warmup_steps(job)
    if path == "scheduler.params.total_num_steps":
        steps = job.trainer.value("max_steps") if job.trainer is not None else None
        if isinstance(steps, int) and steps > 0:
            return Filled(value=steps, origin="filled", note="the Trainer's max_steps")
        return Filled(value=None, origin="assumed", note="the Trainer counts the steps of the run")
    for name, argument, default in TRAINER_FILLED:
        if name == path:
            return _argument(job, argument, default)
    return None


def _warmup_steps(job: Job) -> Filled:
    trainer = job.trainer
    steps = trainer.value("warmup_steps") if trainer is not None else None
    if isinstance(steps, int | float) and not isinstance(steps, bool) and steps >= 1:
        return Filled(value=int(steps), origin="filled", note="the Trainer's warmup_steps")
    total = trainer.value("max_steps") if trainer is not None else None
    ratio = trainer.value("warmup_ratio") if trainer is not None else None
    share = steps if isinstance(steps, float) and steps > 0 else ratio
    if isinstance(total, int) and total > 0 and isinstance(share, int | float) and share > 0:
        return Filled(value=max(1, -int(-total * share // 1)), origin="filled", note="the Trainer's warmup share")
    known = trainer is not None and not share
    return Filled(value=1, origin="filled" if known else "assumed", note="the Trainer's warm-up, 0 steps by default")


def _argument(job: Job, argument: str, default: Any) -> Filled:
    if job.trainer is not None and job.trainer.has(argument):
        return Filled(value=job.trainer.value(argument), origin="filled", note=f"the Trainer's {argument}")
    known = job.trainer is not None
    note = f"the Trainer's {argument}, its default" + ("" if known else " (--trainer-arguments)")
    return Filled(value=default, origin="filled" if known else "assumed", note=note)
