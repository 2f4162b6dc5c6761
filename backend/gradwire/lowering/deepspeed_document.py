"""Makes the DeepSpeed JSON of a plan: every value written, no `auto`, for `deepspeed` itself and below Accelerate."""

from __future__ import annotations

from typing import Any

from gradwire.artifact import DEEPSPEED_FILE
from gradwire.documents.plan_schema import Plan
from gradwire.lowering.deepspeed_scheduler import first_learning_rate, scheduler_section
from gradwire.plan import pins_memory, secondary_partition_size
from gradwire.recipe.torch_buckets import TORCH_BUCKET_MIB

FILE = DEEPSPEED_FILE

_STAGES = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3}
_MIB = 1024 * 1024
NEVER = 1_000_000_000
"""Steps between the lines that DeepSpeed prints on stdout, which belongs to the result."""


def zero_stage(plan: Plan) -> int:
    """Return the ZeRO stage of the plan's strategy; 0 is plain data parallelism."""
    return _STAGES[plan.recipe.parallelism.data.strategy]


def deepspeed_document(plan: Plan, *, with_optimizer: bool, with_scheduler: bool = True) -> dict[str, Any]:
    """Return the DeepSpeed configuration of `plan`.

    `with_optimizer` is false where the program brings its optimizer, and with it the learning rate's course: Accelerate
    refuses a script's own beside one in the file. `with_scheduler` is false where the program moves the learning rate.
    """
    training, batch = plan.recipe.training, plan.batch
    document: dict[str, Any] = {
        "train_batch_size": batch.global_batch_size,
        "train_micro_batch_size_per_gpu": batch.batch_size_per_gpu,
        "gradient_accumulation_steps": batch.gradient_accumulation,
        "gradient_clipping": training.gradient_clip or 0.0,
        "zero_optimization": _zero_section(plan),
        "communication_data_type": communication_data_type(plan),
        "prescale_gradients": _prescales(plan),
        "zero_allow_untested_optimizer": training.optimizer == "SGD",
        "steps_per_print": NEVER,
        "wall_clock_breakdown": False,
        **_precision_sections(plan),
    }
    if not with_optimizer and plan.recipe.parallelism.data.offload.optimizer != "none":
        # Else DeepSpeed refuses every optimizer of the program's own but its own CPU kernels.
        document["zero_force_ds_cpu_optimizer"] = False
    accumulation = gradient_accumulation_data_type(plan)
    if accumulation is not None:
        document["data_types"] = {"grad_accum_dtype": accumulation}
    if with_optimizer:
        scheduler = scheduler_section(training) if with_scheduler else None
        learning_rate = first_learning_rate(training) if scheduler else training.learning_rate
        document["optimizer"] = {"type": training.optimizer, "params": _optimizer_params(plan, learning_rate)}
        if scheduler is not None:
            document["scheduler"] = scheduler
    return document


def _zero_section(plan: Plan) -> dict[str, Any]:
    stage = zero_stage(plan)
    if stage == 0:
        return {"stage": 0}
    mebibytes = _bucket_mebibytes(plan)
    if not reduces_in_buckets(plan):
        return {"stage": stage, "allgather_bucket_size": _elements(mebibytes, model_data_type(plan))}
    section: dict[str, Any] = {
        "stage": stage,
        "contiguous_gradients": True,
        "overlap_comm": True,
        "reduce_scatter": True,
        "reduce_bucket_size": _elements(mebibytes, communication_data_type(plan)),
    }
    if stage < 3:
        # Stage 3 gathers each module by itself and reads no such size.
        section["allgather_bucket_size"] = _elements(mebibytes, model_data_type(plan))
    else:
        section["stage3_gather_16bit_weights_on_model_save"] = False
        section |= _zero_plus_plus(plan)
    return section | _offload_sections(plan)


def _zero_plus_plus(plan: Plan) -> dict[str, Any]:
    asked = plan.recipe.parallelism.data.zero
    section: dict[str, Any] = {}
    if secondary_partition_size(plan) > 1:
        section["zero_hpz_partition_size"] = secondary_partition_size(plan)
    if asked.quantized_weights:
        section["zero_quantized_weights"] = True
    if asked.quantized_gradients:
        section["zero_quantized_gradients"] = True
    return section


def _bucket_mebibytes(plan: Plan) -> float:
    asked = plan.recipe.communication.overlap.bucket_cap_mb
    # auto is refused: the file is written before the ranks can measure anything.
    return TORCH_BUCKET_MIB if asked is None or asked == "auto" else asked


def _offload_sections(plan: Plan) -> dict[str, Any]:
    asked = plan.recipe.parallelism.data.offload
    sections = {}
    for key, device in (("offload_optimizer", asked.optimizer), ("offload_param", asked.parameters)):
        if device != "none":
            folder = {"nvme_path": asked.nvme_path} if device == "nvme" else {}
            sections[key] = {"device": device, "pin_memory": pins_memory(plan), **folder}
    return sections


def _elements(mebibytes: float, data_type: str) -> int:
    """Return how many whole elements of `data_type` fit into a bucket of `mebibytes`; at least one."""
    return max(1, int(mebibytes * _MIB) // (4 if data_type == "fp32" else 2))


def model_data_type(plan: Plan) -> str:
    """Return the type of the weights that the backward pass sees, which is that of the gradients."""
    precision = plan.recipe.training.precision
    is_autocast = zero_stage(plan) == 0 and precision.endswith("-mixed")
    return "fp32" if is_autocast else precision.split("-")[0]


def communication_data_type(plan: Plan) -> str:
    """Return the type in which gradients travel."""
    method = plan.recipe.communication.compression.method
    # Full gradients travel as the model produces them, unless the recipe says otherwise.
    return method if method in ("fp16", "bf16") else plan.recipe.communication.dtype or model_data_type(plan)


def gradient_accumulation_data_type(plan: Plan) -> str | None:
    """Return the type in which ZeRO adds gradients up, None where it is left to DeepSpeed: the model's own."""
    return plan.recipe.training.gradient_accumulation_dtype if zero_stage(plan) else None


def reduces_in_buckets(plan: Plan) -> bool:
    """Return whether DeepSpeed reduces gradients in buckets of a chosen size, while the backward pass goes on.

    Without ZeRO it does not, nor at stage 1 with a bf16 model whose gradients are added up in fp32 on the device: its
    BF16_Optimizer reads no such size (DeepSpeedEngine._do_optimizer_sanity_check of DeepSpeed 0.19.8).
    """
    in_fp32 = model_data_type(plan) == "bf16" and gradient_accumulation_data_type(plan) == "fp32"
    stays = plan.recipe.parallelism.data.offload.optimizer == "none"
    return zero_stage(plan) > 1 or (zero_stage(plan) == 1 and not (in_fp32 and stays))


def _prescales(plan: Plan) -> bool:
    # Divided before it is added up, the sum stays in range; ZeRO's reduce-scatter cannot.
    narrowed = communication_data_type(plan) in ("fp16", "bf16") and model_data_type(plan) == "fp32"
    return narrowed and zero_stage(plan) == 0


def _precision_sections(plan: Plan) -> dict[str, Any]:
    precision = plan.recipe.training.precision
    is_pure = precision == "bf16-true"
    sections: dict[str, Any] = {"fp16": {"enabled": False}, "bf16": {"enabled": False}}
    if zero_stage(plan) == 0:
        # Without ZeRO, DeepSpeed's own 16-bit wrapper takes a step on zero gradients before the first one: weights
        # decay once too often and Adam counts from 1. Autocast has no wrapper.
        # https://github.com/deepspeedai/DeepSpeed/issues/5151
        names = {"bf16-mixed": "bfloat16", "fp16-mixed": "float16"}
        autocast = {"enabled": True, "dtype": names[precision]} if precision in names else {"enabled": False}
        # bf16-true: DeepSpeed trains whatever type the program gives the model; its own modes need ZeRO.
        return {**sections, "torch_autocast": autocast}
    if precision in ("bf16-mixed", "bf16-true"):
        sections["bf16"] = {
            "enabled": True,
            "bf16_master_weights_and_grads": is_pure,
            "bf16_optimizer_states": is_pure,
            "check_grad_overflow": False,
        }
    if precision == "fp16-mixed":
        # torch's GradScaler: from 2**16, doubled after 2000 good steps, halved at the first overflow.
        sections["fp16"] = {
            "enabled": True,
            "auto_cast": False,
            "loss_scale": 0,
            "initial_scale_power": 16,
            "loss_scale_window": 2000,
            "hysteresis": 1,
            "consecutive_hysteresis": False,
            "min_loss_scale": 1,
        }
    return sections


def _optimizer_params(plan: Plan, learning_rate: float) -> dict[str, Any]:
    training = plan.recipe.training
    params: dict[str, Any] = {"lr": learning_rate, "weight_decay": training.weight_decay}
    if training.optimizer == "SGD":
        return {**params, "momentum": training.momentum}
    return {
        **params,
        "betas": list(training.betas),
        "eps": training.epsilon,
        "adam_w_mode": training.optimizer == "AdamW",
        "torch_adam": plan.world.device == "cpu",
    }
