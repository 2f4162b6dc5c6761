"""Starts Accelerate as a plan says, and refuses where it would train in another world, strategy or configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DeepSpeedPlugin, DistributedType, GradientAccumulationPlugin, TorchDynamoPlugin

from gradwire.artifact import DEEPSPEED_FILE
from gradwire.documents.plan_schema import Plan
from gradwire.documents.recipe_schema import Recipe, Training
from gradwire.errors import EnvironmentNotFit
from gradwire.train.accelerator import RecipeAccelerator
from gradwire.train.deepspeed_config import check_deepspeed_config
from gradwire.train.setting import check_device_can


def build_accelerator(plan: Plan, folder: Path | None) -> RecipeAccelerator:
    """Return the plan's Accelerator; `folder` holds the plan's deepspeed.json, None: Accelerate's own file is used.

    Raises EnvironmentNotFit where Accelerate cannot run the plan here or believes in another world than the plan's.
    """
    recipe = plan.recipe
    check_device_can(plan)
    _check_launch(plan)
    if plan.world.device == "cpu":
        # First of all: without it Accelerate looks for a GPU, finds none and believes in a world of one process.
        os.environ["DS_ACCELERATOR"] = "cpu"
        PartialState(cpu=True)
    is_zero = recipe.parallelism.data.strategy.startswith("zero")
    fp32_products = torch.backends.cuda.matmul.fp32_precision
    accelerator = Accelerator(
        dynamo_plugin=_dynamo_plugin(recipe.training),
        mixed_precision=None if is_zero else _mixed_precision(recipe),
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=plan.batch.gradient_accumulation),
        deepspeed_plugin=_deepspeed_plugin(plan, folder) if is_zero else None,
    )
    if torch.backends.cuda.matmul.fp32_precision != fp32_products:
        # With a compiler Accelerate allows TF32 for fp32, without a word. Taken back by the same name: torch raises
        # where older and newer names of this setting say two things.
        torch.backends.cuda.matmul.allow_tf32 = False
    _check_world(plan, accelerator)
    return RecipeAccelerator(plan, accelerator)


def _mixed_precision(recipe: Recipe) -> str:
    if recipe.training.fp8 != "none":
        return "fp8"
    return {"bf16-mixed": "bf16", "fp16-mixed": "fp16"}.get(recipe.training.precision, "no")


def _dynamo_plugin(training: Training) -> Any:
    plugin = TorchDynamoPlugin(
        backend=training.compile_backend if training.compile else "no",
        mode=training.compile_mode,
        fullgraph=training.compile_fullgraph,
        use_regional_compilation=training.compile_regional,
    )
    # accelerate launch exports False where the file says nothing, which the plugin takes for an answer.
    plugin.dynamic = training.compile_dynamic
    return plugin


def _deepspeed_plugin(plan: Plan, folder: Path | None) -> Any:
    # From the folder rather than from the YAML, whose path holds only where it was written.
    file = folder / DEEPSPEED_FILE if folder else None
    if file is None or not file.is_file():
        return DeepSpeedPlugin()
    check_deepspeed_config(plan, str(file), has_optimizer=False)
    return DeepSpeedPlugin(hf_ds_config=str(file))


def _check_launch(plan: Plan) -> None:
    strategy = plan.recipe.parallelism.data.strategy
    asked_for_deepspeed = os.environ.get("ACCELERATE_USE_DEEPSPEED", "false").lower() == "true"
    asked_for_fsdp = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    if (asked_for_deepspeed and not strategy.startswith("zero")) or (asked_for_fsdp and strategy != "fsdp"):
        raise EnvironmentNotFit(
            f"accelerate launch was given a config for {'DEEPSPEED' if asked_for_deepspeed else 'FSDP'}, but the "
            f"plan's strategy is {strategy}; use the accelerate.yaml that was generated with the plan"
        )
    _check_options(plan)


def _check_options(plan: Plan) -> None:
    """Refuse what a file or a flag of the launcher asks for and the plan's own settings would override unsaid."""
    training = plan.recipe.training
    decided = (
        ("mixed_precision", "ACCELERATE_MIXED_PRECISION", _mixed_precision(plan.recipe), "training.precision"),
        (
            "dynamo_backend",
            "ACCELERATE_DYNAMO_BACKEND",
            training.compile_backend if training.compile else "no",
            "training.compile",
        ),
    )
    wrong = []
    for option, variable, planned, key in decided:
        asked = os.environ.get(variable, "no").lower()
        # "no" is also what the launcher exports where nobody said anything.
        if asked not in ("no", planned.lower()):
            wrong.append(
                f"accelerate launch was told {option} {asked}, and the recipe makes it {planned}: "
                f"leave it out there, and set {key} in the recipe"
            )
    if wrong:
        raise EnvironmentNotFit("\n".join(wrong))


def _check_world(plan: Plan, accelerator: Any) -> None:
    if accelerator.num_processes != plan.world.world_size:
        raise EnvironmentNotFit(
            f"the plan is for {plan.world.world_size} processes, but Accelerate believes in "
            f"{accelerator.num_processes} (distributed type {accelerator.distributed_type.value}); "
            "use the accelerate.yaml that was generated with the plan"
        )
    strategy = plan.recipe.parallelism.data.strategy
    expected = {"ddp": "DDP", "fsdp": DistributedType.FSDP.value}.get(strategy, DistributedType.DEEPSPEED.value)
    sharded = (DistributedType.FSDP.value, DistributedType.DEEPSPEED.value)
    found = accelerator.distributed_type.value if accelerator.distributed_type.value in sharded else "DDP"
    if found != expected:
        raise EnvironmentNotFit(
            f"the plan's strategy is {strategy}, but Accelerate would train {found}; "
            "use the accelerate.yaml that was generated with the plan"
        )
