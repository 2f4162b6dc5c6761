"""What transformers' own TrainingArguments reads from a file of arguments, beside what the plan says."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from gradwire.artifact import DEEPSPEED_FILE, TRAINER_FILE
from gradwire.documents.plan_schema import Plan
from gradwire.documents.recipe_schema import Training
from gradwire.errors import UsageError
from gradwire.recipe.learning_rate import last_step
from gradwire.train.deepspeed_config import AUTOCAST_TYPES, Pairs, deepspeed_pairs
from gradwire.train.deepspeed_scheduler import planned_learning_rates, telling_steps
from gradwire.train.dynamo_config import dynamo_pairs
from gradwire.train.fsdp_config import plugin_pairs


def read_arguments(folder: Path) -> dict[str, Any]:
    """Return the arguments in `folder`; raises UsageError where there are none."""
    file = folder / TRAINER_FILE
    try:
        document: dict[str, Any] = json.loads(file.read_bytes())
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; `gradwire lower --backend trainer` writes it") from None
    except ValueError as error:
        raise UsageError(f"{file}: not JSON: {error}") from None
    return document


def check_arguments(plan: Plan, arguments: Any, folder: Path, environment: Mapping[str, str]) -> None:
    """Raise UsageError, with every one at fault, where `arguments`, made from `folder`, are not what the plan says."""
    pairs = argument_pairs(plan, arguments, folder, environment)
    differing = [
        f"{key} is {loaded!r}, the plan says {planned!r}" for key, planned, loaded in pairs if planned != loaded
    ]
    if differing:
        raise UsageError(
            f"{folder / TRAINER_FILE} contradicts the plan beside it: {'; '.join(differing)}; it is generated, not "
            "edited: change the recipe and lower it again"
        )


def trainer_pairs(plan: Plan, folder: Path, environment: Mapping[str, str]) -> Pairs:
    """Yield (key, planned, loaded) for each argument that the plan decides, read by TrainingArguments itself.

    `environment` is what the launch command sets. Raises one of LOADER_ERRORS where transformers refuses the file.
    """
    from transformers import TrainingArguments

    document = read_arguments(folder)
    yield "use_cpu", plan.world.device == "cpu", document.get("use_cpu", False)
    deepspeed = document.pop("deepspeed", None)
    with tempfile.TemporaryDirectory() as unused:
        # On a CPU what is meant for a GPU is still read.
        document["use_cpu"] = document["use_cpu"] or not torch.cuda.is_available()
        arguments = TrainingArguments(**document, output_dir=unused, report_to="none")
    arguments.deepspeed = deepspeed
    yield from argument_pairs(plan, arguments, folder, environment)


def argument_pairs(plan: Plan, arguments: Any, folder: Path, environment: Mapping[str, str]) -> Pairs:
    """Yield the same for a TrainingArguments that was made from the files in `folder`."""
    yield from _training_pairs(plan, arguments)
    given = {"backend": arguments.torch_compile_backend, "mode": arguments.torch_compile_mode}
    yield from dynamo_pairs(plan, environment, {name: value for name, value in given.items() if value is not None})
    strategy = plan.recipe.parallelism.data.strategy
    is_zero = strategy.startswith("zero")
    yield "deepspeed", is_zero, arguments.deepspeed is not None
    yield "fsdp", strategy == "fsdp", bool(arguments.fsdp)
    if strategy == "fsdp":
        yield from _fsdp_pairs(plan, arguments, environment)
    elif is_zero:
        file = str(folder / DEEPSPEED_FILE)
        yield from deepspeed_pairs(plan, file, has_optimizer=True, has_scheduler=False)
        yield "DeepSpeed config values that mismatch TrainingArguments", [], _mismatches(plan, arguments, file)
    else:
        overlap = plan.recipe.communication.overlap
        yield "ddp_find_unused_parameters", overlap.find_unused_parameters, arguments.ddp_find_unused_parameters
        yield "ddp_static_graph", overlap.static_graph, arguments.ddp_static_graph
        yield "ddp_bucket_cap_mb", overlap.bucket_cap_mb, arguments.ddp_bucket_cap_mb


def _training_pairs(plan: Plan, arguments: Any) -> Pairs:
    training, batch = plan.recipe.training, plan.batch
    is_zero = plan.recipe.parallelism.data.strategy.startswith("zero")
    mixed = AUTOCAST_TYPES.get(training.precision, "bf16" if is_zero and training.precision == "bf16-true" else "no")
    yield "per_device_train_batch_size", batch.batch_size_per_gpu, arguments.train_batch_size
    yield "gradient_accumulation_steps", batch.gradient_accumulation, arguments.gradient_accumulation_steps
    yield "max_steps", last_step(training), arguments.max_steps
    yield "seed and data_seed", (training.seed, training.seed), (arguments.seed, arguments.data_seed)
    yield "mixed_precision", mixed, arguments.mixed_precision
    yield "max_grad_norm", training.gradient_clip or 0.0, arguments.max_grad_norm
    yield "weight_decay", training.weight_decay, arguments.weight_decay
    by_token = training.loss_weighting == "token"
    yield "average_tokens_across_devices", by_token, arguments.average_tokens_across_devices
    yield "torch_compile", training.compile, arguments.torch_compile
    yield "activation_checkpointing", training.gradient_checkpointing, arguments.activation_checkpointing
    if training.gradient_checkpointing:
        reentrant = (arguments.activation_checkpointing_kwargs or {}).get("use_reentrant")
        yield "activation_checkpointing_kwargs.use_reentrant", training.gradient_checkpointing_reentrant, reentrant
    yield from _optimizer_pairs(training, arguments)
    steps = [step for step in telling_steps(training) if step < training.max_steps]
    listed = ", ".join(map(str, steps))
    planned = planned_learning_rates(training, steps)
    yield f"learning rates of steps {listed}", planned, _learning_rates(arguments, steps)


def _optimizer_pairs(training: Training, arguments: Any) -> Pairs:
    from transformers import Trainer

    kind, options = Trainer.get_optimizer_cls_and_kwargs(arguments)
    if training.optimizer == "SGD":
        yield "optim", "SGD", kind.__name__
        yield "optim_args momentum", training.momentum, options.get("momentum")
        return
    # Under ZeRO the optimizer is the DeepSpeed file's, and this one is not made.
    yield "optim", "AdamW", kind.__name__
    yield "adam_beta1 and adam_beta2", tuple(training.betas), options["betas"]
    yield "adam_epsilon", training.epsilon, options["eps"]
    yield "fused", False, options.get("fused", False)


def _learning_rates(arguments: Any, steps: list[int]) -> list[float]:
    from transformers import get_scheduler

    optimizer = torch.optim.SGD([torch.zeros(1)], lr=arguments.learning_rate)
    course = get_scheduler(
        arguments.lr_scheduler_type,
        optimizer=optimizer,
        num_warmup_steps=arguments.get_warmup_steps(arguments.max_steps),
        num_training_steps=arguments.max_steps,
        scheduler_specific_kwargs=arguments.lr_scheduler_kwargs,
    )
    factor = course.lr_lambdas[0]
    return [float(f"{arguments.learning_rate * factor(step):.12g}") for step in steps]


def _fsdp_pairs(plan: Plan, arguments: Any, environment: Mapping[str, str]) -> Pairs:
    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.utils import FullyShardedDataParallelPlugin, patch_environment

    fsdp, given = plan.recipe.parallelism.data.fsdp, dict(arguments.fsdp_plugin_args)
    yield "cpu_ram_efficient_loading", fsdp.cpu_ram_efficient_loading, bool(given["cpu_ram_efficient_loading"])
    if fsdp.version == 1:
        yield "sync_module_states", fsdp.sync_module_states, bool(given["sync_module_states"])
    if not torch.cuda.is_available():
        # These two make the plugin look for a device, of which this machine has none.
        given |= {"cpu_ram_efficient_loading": False, "sync_module_states": False}
    with patch_environment(**environment):
        plugin = FullyShardedDataParallelPlugin(**given)
        mesh = ParallelismConfig()
    yield from plugin_pairs(plan, plugin, mesh)


def _mismatches(plan: Plan, arguments: Any, file: str) -> list[str]:
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    # transformers asks the process group how many ranks there are, which has not started; the plan knows.
    asked = SimpleNamespace(**{**vars(arguments), "world_size": plan.world.world_size})
    asked.get_warmup_steps = arguments.get_warmup_steps
    config = getattr(arguments, "hf_deepspeed_config", None)
    if config is None:
        config = HfTrainerDeepSpeedConfig(file)
        config.trainer_config_process(asked)
    found: list[str] = [line.strip("- ") for line in config.mismatches]
    return found
