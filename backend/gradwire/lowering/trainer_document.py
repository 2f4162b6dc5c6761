"""Makes the arguments of transformers' Trainer from a plan, every one that the recipe decides written."""

from __future__ import annotations

from typing import Any

from gradwire.artifact import TRAINER_FILE
from gradwire.documents.plan_schema import Plan
from gradwire.documents.recipe_schema import Training
from gradwire.lowering.accelerate_document import block_classes, sharding_strategy
from gradwire.lowering.deepspeed_document import FILE as DEEPSPEED_FILE
from gradwire.lowering.placement import Placement
from gradwire.lowering.sharding import is_hybrid
from gradwire.plan import shard_group_size
from gradwire.recipe.learning_rate import last_step

FILE = TRAINER_FILE

_WRAP_POLICIES = {"blocks": "TRANSFORMER_BASED_WRAP", "size": "SIZE_BASED_WRAP", "model": "NO_WRAP"}


def arguments_document(plan: Plan, placement: Placement) -> dict[str, Any]:
    """Return the arguments of transformers.TrainingArguments that the recipe decides, by their names there."""
    training, batch = plan.recipe.training, plan.batch
    strategy = plan.recipe.parallelism.data.strategy
    document: dict[str, Any] = {
        "activation_checkpointing": training.gradient_checkpointing,
        "average_tokens_across_devices": training.loss_weighting == "token",
        "bf16": _is_bf16(plan),
        "data_seed": training.seed,
        "fp16": training.precision == "fp16-mixed",
        "gradient_accumulation_steps": batch.gradient_accumulation,
        "learning_rate": training.learning_rate,
        "max_grad_norm": training.gradient_clip or 0.0,
        "max_steps": last_step(training),
        "per_device_train_batch_size": batch.batch_size_per_gpu,
        "seed": training.seed,
        "torch_compile": training.compile,
        "use_cpu": plan.world.device == "cpu",
        "weight_decay": training.weight_decay,
        **_optimizer(training),
        **_schedule(training),
    }
    if training.gradient_checkpointing:
        document["activation_checkpointing_kwargs"] = {"use_reentrant": training.gradient_checkpointing_reentrant}
    if training.compile:
        document |= {"torch_compile_backend": training.compile_backend, "torch_compile_mode": training.compile_mode}
    if strategy == "ddp":
        document |= _ddp(plan)
    elif strategy == "fsdp":
        document |= {"fsdp": True, "fsdp_config": fsdp_arguments(plan)}
    else:
        document["deepspeed"] = str(placement.out_folder / DEEPSPEED_FILE)
    return document


def _is_bf16(plan: Plan) -> bool:
    # Under ZeRO the file says bf16 for the pure mode too, and the arguments have to agree with it.
    precision, is_zero = plan.recipe.training.precision, plan.recipe.parallelism.data.strategy.startswith("zero")
    return precision == "bf16-mixed" or (precision == "bf16-true" and is_zero)


def _optimizer(training: Training) -> dict[str, Any]:
    if training.optimizer == "SGD":
        return {"optim": "sgd", "optim_args": f"momentum={training.momentum}"}
    beta1, beta2 = training.betas
    # Not the fused form, which is the default: it is torch's own on some devices only.
    return {"optim": "adamw_torch", "adam_beta1": beta1, "adam_beta2": beta2, "adam_epsilon": training.epsilon}


def _schedule(training: Training) -> dict[str, Any]:
    scheduler = training.scheduler
    name, options = "constant", {}
    is_flat = scheduler.min_ratio == 1
    match scheduler.type:
        case "constant" | "linear" if is_flat or scheduler.type == "constant":
            name = "constant_with_warmup" if scheduler.warmup_steps else "constant"
        case "linear" if scheduler.min_ratio == 0:
            name = "linear"
        case "linear":
            # The linear one falls to 0 only.
            name, options = "polynomial", {"lr_end": scheduler.min_ratio * training.learning_rate, "power": 1.0}
        case "cosine" if scheduler.min_ratio == 0:
            name = "cosine"
        case "cosine":
            name, options = "cosine_with_min_lr", {"min_lr_rate": scheduler.min_ratio}
    found: dict[str, Any] = {"lr_scheduler_type": name, "warmup_steps": scheduler.warmup_steps}
    return found | ({"lr_scheduler_kwargs": options} if options else {})


def _ddp(plan: Plan) -> dict[str, Any]:
    overlap = plan.recipe.communication.overlap
    document: dict[str, Any] = {
        "ddp_find_unused_parameters": overlap.find_unused_parameters,
        "ddp_static_graph": overlap.static_graph,
    }
    if overlap.bucket_cap_mb is not None:
        document["ddp_bucket_cap_mb"] = overlap.bucket_cap_mb
    return document


def fsdp_arguments(plan: Plan) -> dict[str, Any]:
    """Return the fsdp_config of the Trainer; its keys have no fsdp_ before them."""
    data = plan.recipe.parallelism.data
    fsdp = data.fsdp
    section: dict[str, Any] = {
        "version": fsdp.version,
        "activation_checkpointing": False,
        "auto_wrap_policy": _WRAP_POLICIES[fsdp.wrap],
        "cpu_offload": data.offload.parameters == "cpu",
        "cpu_ram_efficient_loading": fsdp.cpu_ram_efficient_loading,
        "state_dict_type": f"{fsdp.state_dict}_state_dict".upper(),
    }
    if fsdp.version == 1:
        section |= {
            "reshard_after_forward": sharding_strategy(plan).lower(),
            "sync_module_states": fsdp.sync_module_states,
            "use_orig_params": True,
        }
    else:
        section["reshard_after_forward"] = fsdp.reshard_after_forward
    if fsdp.wrap == "size":
        section["min_num_params"] = fsdp.wrap_min_parameters
    if fsdp.wrap == "blocks" and block_classes(plan):
        section["transformer_layer_cls_to_wrap"] = block_classes(plan)
    return section


def fsdp_environment(plan: Plan) -> dict[str, str]:
    """Return what Accelerate, below the Trainer, reads from the environment only."""
    data = plan.recipe.parallelism.data
    if data.strategy != "fsdp":
        return {}
    if data.fsdp.version == 1:
        # It wins over reshard_after_forward, and is FULL_SHARD where it is absent.
        return {"FSDP_SHARDING_STRATEGY": sharding_strategy(plan)}
    if not is_hybrid(plan):
        return {}
    group = shard_group_size(plan)
    return {
        "ACCELERATE_USE_PARALLELISM_CONFIG": "true",
        "PARALLELISM_CONFIG_DP_REPLICATE_SIZE": str(plan.batch.data_parallel_size // group),
        "PARALLELISM_CONFIG_DP_SHARD_SIZE": str(group),
    }
