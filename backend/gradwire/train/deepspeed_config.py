"""What a DeepSpeed config says once DeepSpeed itself has loaded it, beside what the plan says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from gradwire.documents.plan_schema import Plan
from gradwire.documents.recipe_schema import Training
from gradwire.errors import UsageError
from gradwire.plan import pins_memory, secondary_partition_size
from gradwire.recipe.learning_rate import changes
from gradwire.recipe.torch_buckets import TORCH_BUCKET_MIB
from gradwire.train.deepspeed_scheduler import file_learning_rates, planned_learning_rates, telling_steps

LOADER_ERRORS = (ValueError, TypeError, KeyError, AttributeError, AssertionError)
"""What the libraries' loaders raise for a file that they do not accept."""

AUTOCAST_TYPES = {"bf16-mixed": "bf16", "fp16-mixed": "fp16"}
_STAGES = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3}

# As torch's GradScaler moves it.
_TORCH_LOSS_SCALE = {
    "fp16.loss_scale": 0,
    "fp16.initial_scale_power": 16,
    "fp16.loss_scale_window": 2000,
    "fp16.hysteresis": 1,
    "fp16.min_loss_scale": 1,
}

Pairs = Iterator[tuple[str, Any, Any]]


def check_deepspeed_config(plan: Plan, source: str | dict[str, Any], *, has_optimizer: bool) -> None:
    """Raise UsageError, with every key at fault, where a DeepSpeed config is not what the plan was lowered to."""
    try:
        pairs = list(deepspeed_pairs(plan, source, has_optimizer=has_optimizer))
    except LOADER_ERRORS as error:
        raise UsageError(f"deepspeed.json: DeepSpeed does not accept it: {error}; lower the recipe again") from None
    differing = [
        f"{key} is {loaded!r}, the plan says {planned!r}" for key, planned, loaded in pairs if planned != loaded
    ]
    if differing:
        raise UsageError(
            "deepspeed.json contradicts the plan beside it: "
            + "; ".join(differing)
            + "; it is generated, not edited: change the recipe (or its backends.deepspeed) and lower it again"
        )


def deepspeed_pairs(
    plan: Plan, source: str | dict[str, Any], *, has_optimizer: bool, has_scheduler: bool = True
) -> Pairs:
    """Yield (key, planned, loaded) for each value of a DeepSpeed config that the plan decides.

    `source` is a file's path or a loaded document. `has_scheduler` is false where the program moves the learning rate
    of the file's optimizer. Raises one of LOADER_ERRORS where DeepSpeed does not accept it.
    """
    from deepspeed.runtime import config as deepspeed_config

    # DeepSpeedConfig asks the process group how many ranks there are, which may not have started; the plan knows.
    distributed = deepspeed_config.dist
    ranks = plan.batch.data_parallel_size
    deepspeed_config.dist = SimpleNamespace(get_rank=lambda: 0, get_world_size=lambda: ranks)
    try:
        loaded = deepspeed_config.DeepSpeedConfig(source)
    except deepspeed_config.DeepSpeedConfigError as error:
        raise ValueError(str(error)) from error
    finally:
        deepspeed_config.dist = distributed
    found = _loaded_deepspeed(loaded)
    planned = _planned_deepspeed(plan, has_optimizer=has_optimizer)
    planned |= {key: value for key, value in _leaves(plan.recipe.backends.deepspeed) if key in planned}
    for key, value in planned.items():
        yield key, value, found[key]
    if has_optimizer and has_scheduler and "scheduler" not in plan.recipe.backends.deepspeed:
        yield _learning_rate_pair(plan.recipe.training, loaded)
    elif has_optimizer and not has_scheduler:
        yield "optimizer.params.lr", plan.recipe.training.learning_rate, loaded.optimizer_params["lr"]
        yield "scheduler.type", None, loaded.scheduler_name


def file_has_the_learning_rates(training: Training, document: Mapping[str, Any]) -> bool:
    """Say whether DeepSpeed takes every step with the recipe's learning rate, given nothing but its file."""
    steps = telling_steps(training)
    scheduler = document.get("scheduler", {})
    learning_rate = document["optimizer"]["params"]["lr"]
    found = file_learning_rates(learning_rate, scheduler.get("type"), scheduler.get("params"), steps)
    return found == planned_learning_rates(training, steps)


def _planned_deepspeed(plan: Plan, *, has_optimizer: bool) -> dict[str, Any]:
    training, communication = plan.recipe.training, plan.recipe.communication
    stage = _STAGES[plan.recipe.parallelism.data.strategy]
    autocast = AUTOCAST_TYPES.get(training.precision) if stage == 0 else None
    data_type = "fp32" if autocast else training.precision.split("-")[0]
    method = communication.compression.method
    wire = communication.dtype or data_type if method == "none" else method
    is_pure = training.precision == "bf16-true" and stage > 0
    planned = {
        "train_batch_size": plan.batch.global_batch_size,
        "train_micro_batch_size_per_gpu": plan.batch.batch_size_per_gpu,
        "gradient_accumulation_steps": plan.batch.gradient_accumulation,
        "gradient_clipping": training.gradient_clip or 0.0,
        "communication_data_type": wire,
        "data_types.grad_accum_dtype": training.gradient_accumulation_dtype if stage else None,
        "zero_optimization.stage": stage,
        "fp16.enabled": data_type == "fp16",
        "bf16.enabled": data_type == "bf16" and stage > 0,
        "bf16.bf16_master_weights_and_grads": is_pure,
        "bf16.bf16_optimizer_states": is_pure,
        "torch_autocast": autocast,
        # Divided before it is summed, where the sum travels in 16 bits and DeepSpeed all-reduces.
        "prescale_gradients": stage == 0 and wire in ("fp16", "bf16") and data_type == "fp32",
        "zero_allow_untested_optimizer": training.optimizer == "SGD",
    }
    in_fp32 = data_type == "bf16" and training.gradient_accumulation_dtype == "fp32"
    if stage and not (stage == 1 and in_fp32 and plan.recipe.parallelism.data.offload.optimizer == "none"):
        # auto is refused when a recipe is lowered.
        asked = communication.overlap.bucket_cap_mb
        bucket_bytes = int((TORCH_BUCKET_MIB if asked is None or asked == "auto" else asked) * 1024 * 1024)
        planned["zero_optimization.reduce_bucket_size"] = max(1, bucket_bytes // (4 if wire == "fp32" else 2))
        planned["zero_optimization.overlap_comm"] = True
        planned["zero_optimization.contiguous_gradients"] = planned["zero_optimization.reduce_scatter"] = True
        if stage < 3:
            planned["zero_optimization.allgather_bucket_size"] = max(
                1, bucket_bytes // (4 if data_type == "fp32" else 2)
            )
        else:
            planned["zero_optimization.stage3_gather_16bit_weights_on_model_save"] = False
    if planned["bf16.enabled"]:
        planned["bf16.check_grad_overflow"] = False
    if planned["fp16.enabled"]:
        planned |= _TORCH_LOSS_SCALE
    planned |= _planned_sharding(plan, stage, has_optimizer=has_optimizer)
    if has_optimizer:
        planned |= _planned_optimizer(plan)
    return planned


def _learning_rate_pair(training: Training, loaded: Any) -> tuple[str, Any, Any]:
    steps = _steps_that_a_file_can_say(training)
    planned = planned_learning_rates(training, steps)
    found = file_learning_rates(loaded.optimizer_params["lr"], loaded.scheduler_name, loaded.scheduler_params, steps)
    return f"learning rates of steps {', '.join(map(str, steps))}", planned, found


def _steps_that_a_file_can_say(training: Training) -> list[int]:
    """Return the steps to compare: those after the warm-up where no scheduler of DeepSpeed's warms up like that."""
    scheduler, steps = training.scheduler, telling_steps(training)
    if not changes(scheduler):
        return steps[:1]
    if scheduler.warmup_steps == 0 or (scheduler.type != "cosine" and scheduler.min_ratio == 0):
        return steps
    # A warm-up is at least two steps long there.
    first = max(2, scheduler.warmup_steps) + 1
    return [step for step in steps if step >= first] if scheduler.warmup_steps > 1 else [steps[-1] + 1]


def _planned_sharding(plan: Plan, stage: int, *, has_optimizer: bool) -> dict[str, Any]:
    data = plan.recipe.parallelism.data
    planned: dict[str, Any] = {
        "zero_optimization.zero_hpz_partition_size": secondary_partition_size(plan) if stage == 3 else 1,
        "zero_optimization.zero_quantized_weights": data.zero.quantized_weights,
        "zero_optimization.zero_quantized_gradients": data.zero.quantized_gradients,
        "zero_force_ds_cpu_optimizer": has_optimizer or data.offload.optimizer == "none",
    }
    for key, device in (("offload_optimizer", data.offload.optimizer), ("offload_param", data.offload.parameters)):
        planned[f"zero_optimization.{key}.device"] = device
        if device != "none":
            planned[f"zero_optimization.{key}.pin_memory"] = pins_memory(plan)
            planned[f"zero_optimization.{key}.nvme_path"] = data.offload.nvme_path if device == "nvme" else None
    return planned


def _planned_optimizer(plan: Plan) -> dict[str, Any]:
    training = plan.recipe.training
    planned = {
        # DeepSpeed spells the optimizers that it builds itself in lower case.
        "optimizer.type": "SGD" if training.optimizer == "SGD" else training.optimizer.lower(),
        "optimizer.params.weight_decay": training.weight_decay,
    }
    if training.optimizer == "SGD":
        return planned | {"optimizer.params.momentum": training.momentum}
    return planned | {
        "optimizer.params.betas": list(training.betas),
        "optimizer.params.eps": training.epsilon,
        "optimizer.params.adam_w_mode": training.optimizer == "AdamW",
    }


_ZERO_FIELDS = {
    "allgather_bucket_size": "allgather_bucket_size",
    "contiguous_gradients": "contiguous_gradients",
    "reduce_scatter": "reduce_scatter",
    "stage3_gather_16bit_weights_on_model_save": "gather_16bit_weights_on_model_save",
}


def _loaded_deepspeed(loaded: Any) -> dict[str, Any]:
    zero, bf16 = loaded.zero_config, loaded.bfloat16_config
    names = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16"}
    params = loaded.optimizer_params or {}
    return {
        "train_batch_size": loaded.train_batch_size,
        "train_micro_batch_size_per_gpu": loaded.train_micro_batch_size_per_gpu,
        "gradient_accumulation_steps": loaded.gradient_accumulation_steps,
        "gradient_clipping": loaded.gradient_clipping,
        "communication_data_type": names.get(str(loaded.communication_data_type)),
        "data_types.grad_accum_dtype": loaded.grad_accum_dtype,
        "zero_optimization.stage": int(zero.stage),
        "zero_optimization.reduce_bucket_size": zero.reduce_bucket_size,
        "zero_optimization.overlap_comm": zero.overlap_comm,
        "zero_optimization.zero_hpz_partition_size": zero.zero_hpz_partition_size,
        "zero_optimization.zero_quantized_weights": zero.zero_quantized_weights,
        "zero_optimization.zero_quantized_gradients": zero.zero_quantized_gradients,
        "zero_force_ds_cpu_optimizer": loaded.zero_force_ds_cpu_optimizer,
        **_loaded_offload("offload_optimizer", zero.offload_optimizer),
        **_loaded_offload("offload_param", zero.offload_param),
        "prescale_gradients": loaded.prescale_gradients,
        "zero_allow_untested_optimizer": loaded.zero_allow_untested_optimizer,
        **{f"zero_optimization.{name}": getattr(zero, field) for name, field in _ZERO_FIELDS.items()},
        "fp16.enabled": loaded.float16_config.enabled,
        **{name: getattr(loaded.float16_config, name.partition(".")[2]) for name in _TORCH_LOSS_SCALE},
        "bf16.check_grad_overflow": bf16.check_grad_overflow,
        "bf16.enabled": bf16.enabled,
        "bf16.bf16_master_weights_and_grads": bf16.bf16_master_weights_and_grads,
        "bf16.bf16_optimizer_states": bf16.bf16_optimizer_states,
        "torch_autocast": names[str(loaded.torch_autocast_dtype)] if loaded.torch_autocast_enabled else None,
        "optimizer.type": loaded.optimizer_name,
        **{f"optimizer.params.{key}": value for key, value in params.items()},
    }


def _loaded_offload(key: str, section: Any) -> dict[str, Any]:
    from deepspeed.runtime.zero.offload_config import OffloadDeviceEnum

    prefix = f"zero_optimization.{key}"
    if section is None:
        return {f"{prefix}.device": "none"}
    return {
        f"{prefix}.device": OffloadDeviceEnum(section.device).value,
        f"{prefix}.pin_memory": section.pin_memory,
        f"{prefix}.nvme_path": None if section.nvme_path is None else str(section.nvme_path),
    }


def _leaves(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
