"""Accounts for what transformers' Trainer makes of each recipe field."""

from __future__ import annotations

from dataclasses import replace

from gradwire.documents.plan_schema import Plan
from gradwire.lowering.accelerate_document import block_classes, is_zero
from gradwire.lowering.compilation import tf32_note, trainer_compile_outcomes
from gradwire.lowering.deepspeed_account import deepspeed_outcomes
from gradwire.lowering.deepspeed_document import FILE as DEEPSPEED_FILE
from gradwire.lowering.fields import Outcome, emulated, exact, unused
from gradwire.lowering.number_formats import label_outcomes, torch_format_outcomes
from gradwire.lowering.program import in_program
from gradwire.lowering.sharding import FSDP, is_hybrid, unused_sharding
from gradwire.lowering.shared import (
    common_outcomes,
    compression_outcomes,
    extras_outcome,
    optimizer_outcomes,
    overlap_outcomes,
    scheduler_outcomes,
)
from gradwire.lowering.trainer_document import FILE
from gradwire.plan import pins_memory
from gradwire.recipe.learning_rate import last_step

HELPER = "gradwire.integrations.trainer.follow_recipe"

_DATA = "parallelism.data"
_OVERLAP = "communication.overlap."


def trainer_outcomes(plan: Plan, program: tuple[str, ...] | None) -> dict[str, Outcome]:
    """Return the outcome of every recipe field under the Trainer."""
    training = plan.recipe.training
    outcomes = {
        **common_outcomes(plan, program),
        "training.max_steps": _max_steps(plan, program),
        "training.seed": exact(f"{FILE} seed and data_seed"),
        "training.gradient_checkpointing": _recomputation(f"{FILE} activation_checkpointing", program),
        **trainer_compile_outcomes(plan, FILE),
        "training.num_gpus": exact("torchrun --nnodes x --nproc-per-node"),
        "training.device": exact(f"{FILE} use_cpu"),
        "training.gradient_clip": exact(f"{FILE} max_grad_norm"),
        "training.batch_size_per_gpu": exact(f"{FILE} per_device_train_batch_size"),
        "training.gradient_accumulation": exact(f"{FILE} gradient_accumulation_steps"),
        "training.precision": _precision(plan, program),
        **optimizer_outcomes(plan, _optimizer(plan, program)),
        **scheduler_outcomes(plan, exact(f"{FILE} lr_scheduler_type, warmup_steps and lr_scheduler_kwargs")),
    }
    outcomes |= _labels(plan, program)
    if training.gradient_checkpointing:
        carrier = f"{FILE} activation_checkpointing_kwargs"
        outcomes["training.gradient_checkpointing_reentrant"] = _recomputation(carrier, program)
    if is_zero(plan):
        by_deepspeed = deepspeed_outcomes(plan, program)
        both = {
            name: exact(f"{FILE} and {DEEPSPEED_FILE}", "both say the same; the Trainer refuses two that differ")
            for name in ("training.gradient_clip", "training.batch_size_per_gpu", "training.gradient_accumulation")
        }
        extras = extras_outcome(plan.recipe.backends.deepspeed, DEEPSPEED_FILE)
        return {**outcomes, **by_deepspeed, **both, "backends.deepspeed": extras}
    if plan.recipe.parallelism.data.strategy == "fsdp":
        return {
            **outcomes,
            f"{_DATA}.strategy": exact(f"{FILE} fsdp"),
            **_fsdp(plan),
            **torch_format_outcomes(plan, exact(f"{FILE} bf16 and fp16")),
            **compression_outcomes(plan, unused(), unused()),
            **overlap_outcomes(unused("DDP's settings")),
        }
    method = plan.recipe.communication.compression.method
    by_helper = in_program(program, helper=HELPER)
    return {
        **outcomes,
        f"{_DATA}.strategy": exact("torchrun", "the Trainer wraps the model in DDP where there are several processes"),
        **unused_sharding(plan),
        **torch_format_outcomes(plan, by_helper),
        **compression_outcomes(plan, unused() if method == "none" else by_helper, by_helper),
        **_overlap(plan, by_helper),
    }


def _max_steps(plan: Plan, program: tuple[str, ...] | None) -> Outcome:
    training = plan.recipe.training
    falls_until = last_step(training)
    if falls_until == training.max_steps:
        return exact(f"{FILE} max_steps")
    by = in_program(program, helper=HELPER)
    note = f"max_steps there is {falls_until}, until which the learning rate falls; {by.carrier} ends training before"
    return replace(by, note=f"{note}; {by.note}" if by.note else note)


def _labels(plan: Plan, program: tuple[str, ...] | None) -> dict[str, Outcome]:
    carrier = f"{FILE} average_tokens_across_devices"
    weighs = exact(carrier) if program is not None else in_program(program)
    outcomes = label_outcomes(plan, reads=in_program(program), weighs=weighs)
    if program is not None and plan.recipe.training.loss_weighting == "micro-batch":
        note = "the Trainer weighs the labels of a rank's micro-steps the same; equal where each has as many"
        outcomes["training.loss_weighting"] = emulated(carrier, note)
    return outcomes


def _recomputation(carrier: str, program: tuple[str, ...] | None) -> Outcome:
    return exact(carrier) if program is not None else in_program(program)


def _optimizer(plan: Plan, program: tuple[str, ...] | None) -> dict[str, Outcome]:
    carriers = {
        "optimizer": exact(f"{FILE} optim"),
        "learning_rate": exact(f"{FILE} learning_rate"),
        "weight_decay": _weight_decay(plan, program),
        "betas": exact(f"{FILE} adam_beta1 and adam_beta2"),
        "epsilon": exact(f"{FILE} adam_epsilon"),
        "momentum": exact(f"{FILE} optim_args"),
    }
    if is_zero(plan):
        section = f"{DEEPSPEED_FILE} optimizer"
        carriers["optimizer"] = exact(f"{section}.type and {section}.params.adam_w_mode")
        carriers["momentum"] = exact(f"{section}.params.momentum")
    return carriers


def _weight_decay(plan: Plan, program: tuple[str, ...] | None) -> Outcome:
    if is_zero(plan):
        return exact(f"{FILE} weight_decay and {DEEPSPEED_FILE} optimizer.params.weight_decay")
    if plan.recipe.training.weight_decay == 0:
        return exact(f"{FILE} weight_decay")
    if program is None:
        return in_program(program)
    note = f"the Trainer alone leaves biases and norms out: {HELPER} has it apply to every parameter"
    return emulated(f"{FILE} weight_decay, and {HELPER}", note)


def _precision(plan: Plan, program: tuple[str, ...] | None) -> Outcome:
    match plan.recipe.training.precision:
        case "fp32":
            carrier, rounds = f"{FILE} bf16 and fp16, both false", tf32_note(plan, HELPER, program)
            return emulated(carrier, rounds) if rounds else exact(carrier)
        case "bf16-true":
            by = in_program(program, helper=HELPER).carrier
            note = f"TrainingArguments has no such mode: bf16 is false and {by} casts the model itself"
            return emulated(f"{FILE} bf16 and {by}", note)
        case precision:
            name = precision.removesuffix("-mixed")
            if plan.recipe.parallelism.data.strategy != "fsdp":
                return exact(f"{FILE} {name}")
            return emulated(f"{FILE} {name}", f"fully_shard computes and reduces in {name}")


def _fsdp(plan: Plan) -> dict[str, Outcome]:
    data = plan.recipe.parallelism.data
    section = f"{FILE} fsdp_config."
    reshard = (
        exact("FSDP_SHARDING_STRATEGY in the environment", "it wins over fsdp_config.reshard_after_forward")
        if data.fsdp.version == 1
        else exact(f"{section}reshard_after_forward")
    )
    outcomes = unused_sharding(plan) | {
        f"{FSDP}.version": exact(f"{section}version"),
        f"{FSDP}.reshard_after_forward": reshard,
        f"{FSDP}.wrap": exact(f"{section}auto_wrap_policy"),
        f"{FSDP}.state_dict": exact(f"{section}state_dict_type"),
        f"{FSDP}.cpu_ram_efficient_loading": exact(f"{section}cpu_ram_efficient_loading"),
    }
    if data.fsdp.version == 1:
        outcomes[f"{FSDP}.sync_module_states"] = exact(f"{section}sync_module_states")
    if data.fsdp.wrap == "size":
        outcomes[f"{FSDP}.wrap_min_parameters"] = exact(f"{section}min_num_params")
    if plan.recipe.model is None and block_classes(plan):
        outcomes[f"{FSDP}.block_classes"] = exact(f"{section}transformer_layer_cls_to_wrap")
    if data.offload.parameters != "none":
        carried = exact(f"{section}cpu_offload")
        outcomes |= {f"{_DATA}.offload.{name}": carried for name in ("optimizer", "parameters")}
        pinned = exact(f"{section}cpu_offload", "Accelerate, below the Trainer, pins the memory it offloads to")
        outcomes[f"{_DATA}.offload.pin_memory"] = pinned if pins_memory(plan) else unused("the device is the CPU")
    if is_hybrid(plan):
        mesh = "PARALLELISM_CONFIG_DP_SHARD_SIZE in the environment"
        outcomes[f"{_DATA}.shard_group_size"] = exact(mesh) if data.fsdp.version == 2 else reshard
    return outcomes


def _overlap(plan: Plan, by_helper: Outcome) -> dict[str, Outcome]:
    overlap = plan.recipe.communication.overlap
    outcomes = {
        **overlap_outcomes(by_helper),
        f"{_OVERLAP}find_unused_parameters": exact(f"{FILE} ddp_find_unused_parameters"),
        f"{_OVERLAP}static_graph": exact(f"{FILE} ddp_static_graph"),
    }
    if overlap.first_bucket_mb is None:
        outcomes[f"{_OVERLAP}first_bucket_mb"] = unused("as bucket_cap_mb, or torch's own")
        cap = overlap.bucket_cap_mb
        outcomes[f"{_OVERLAP}bucket_cap_mb"] = exact(f"{FILE} ddp_bucket_cap_mb" if cap else "torch's own 25 MiB")
    if not overlap.gradient_as_bucket_view:
        outcomes[f"{_OVERLAP}gradient_as_bucket_view"] = unused("torch's own default")
    return outcomes
