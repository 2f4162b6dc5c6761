"""Makes transformers' TrainingArguments from a plan, and a Trainer do what no argument says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch
import transformers

from gradwire.artifact import DEEPSPEED_FILE, REPORT_FILE
from gradwire.documents.lowering_schema import LoweringReport
from gradwire.documents.plan_schema import Plan
from gradwire.errors import EnvironmentNotFit, UsageError
from gradwire.recipe.learning_rate import last_step
from gradwire.train.accelerator import RecipeDistributedDataParallelKwargs
from gradwire.train.communication import GradientCommunication
from gradwire.train.ddp import ddp_options, register_communication
from gradwire.train.model import weights_dtype
from gradwire.train.setting import check_device_can
from gradwire.train.trainer_config import check_arguments, read_arguments

_PERSONS_OWN = ("OMP_NUM_THREADS",)


def build_arguments(plan: Plan, folder: Path, own: Mapping[str, Any]) -> Any:
    """Return the TrainingArguments of the plan that lies in `folder`, with `own` beside what the recipe decides.

    Raises UsageError where `own` says otherwise than the recipe, or the files were edited; EnvironmentNotFit where
    the Trainer cannot run the plan here or believes in another world than the plan's.
    """
    check_device_can(plan)
    decided = read_arguments(folder)
    conflicts = [
        f"{name}={value!r} (the recipe makes it {decided[name]!r})"
        for name, value in own.items()
        if name in decided and value != decided[name]
    ]
    if conflicts:
        raise UsageError(f"not for the script to say: {', '.join(conflicts)}; change the recipe and lower it again")
    environment = _launch_environment(folder)
    # Accelerate, below the Trainer, reads them; launch.sh sets the same.
    os.environ.update(environment)
    if "deepspeed" in decided:
        decided["deepspeed"] = str(folder / DEEPSPEED_FILE)
    arguments = transformers.TrainingArguments(**{"output_dir": str(folder / "checkpoints"), **own, **decided})
    if arguments.world_size != plan.world.world_size:
        raise EnvironmentNotFit(
            f"the plan is for {plan.world.world_size} processes, but the Trainer believes in {arguments.world_size}; "
            "use the command of launch.sh beside the plan"
        )
    # What else stands in it counts too: a launcher may have been told to compile.
    check_arguments(plan, arguments, folder, os.environ)
    return arguments


def _launch_environment(folder: Path) -> dict[str, str]:
    file = folder / REPORT_FILE
    try:
        report = msgspec.json.decode(file.read_bytes(), type=LoweringReport)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; `gradwire lower --backend trainer` writes it") from None
    except msgspec.DecodeError as error:
        raise UsageError(f"{file}: not what was generated: {error}; lower the recipe again") from None
    return {name: value for name, value in report.environment.items() if name not in _PERSONS_OWN}


def follow(trainer: Any, plan: Plan) -> list[GradientCommunication]:
    """Have `trainer`, which has not trained yet, do what its arguments cannot say.

    Training ends after max_steps, where the learning rate would fall for longer. Fp32 products stay fp32 beside a
    compiler. Weight decay applies to every parameter, a pure bf16 model is cast, and DDP gets the recipe's options and
    gradient communication. Returns the list that gets what averages gradients once the model is wrapped; close each at
    the end.
    """
    recipe = plan.recipe
    communications: list[GradientCommunication] = []
    if last_step(recipe.training) > recipe.training.max_steps:
        trainer.add_callback(_Stop(recipe.training.max_steps))
    # accelerate launch exports False where its file says nothing, which the plugin takes for an answer.
    trainer.accelerator.state.dynamo_plugin.dynamic = recipe.training.compile_dynamic
    if recipe.training.compile and trainer.args.tf32 is None:
        # With a compiler transformers and Accelerate allow TF32 for fp32, without a word.
        torch.set_float32_matmul_precision("highest")
    if recipe.parallelism.data.strategy.startswith("zero"):
        return communications
    trainer.get_decay_parameter_names = _every_parameter
    trainer.model.to(dtype=weights_dtype(recipe.training))
    if recipe.parallelism.data.strategy == "ddp":
        trainer.accelerator.ddp_handler = RecipeDistributedDataParallelKwargs(
            register=lambda model: communications.append(register_communication(model, recipe)),
            options=lambda: ddp_options(recipe.communication.overlap),
        )
    return communications


class _Stop(transformers.TrainerCallback):  # type: ignore[misc]
    """Ends training before the learning rate has fallen to the end."""

    def __init__(self, max_steps: int) -> None:
        self._max_steps = max_steps

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step >= self._max_steps:
            control.should_training_stop = True


def _every_parameter(model: Any) -> list[str]:
    return [name for name, _ in model.named_parameters()]
