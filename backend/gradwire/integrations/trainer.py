"""The door for a script with transformers' Trainer: its arguments from a lowered recipe, and what they cannot say.

    arguments = training_arguments("OUT", logging_steps=10)
    trainer = Trainer(model=model, args=arguments, train_dataset=samples)
    follow_recipe(trainer, "OUT")
    trainer.train()

`gradwire lower RECIPE --backend trainer --out OUT` writes the arguments; OUT/launch.sh, or torchrun with as many
processes, starts the script.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from gradwire.documents.plan_schema import Plan
from gradwire.errors import UsageError
from gradwire.train.communication import GradientCommunication
from gradwire.train.reading import read_plan
from gradwire.train.setting import check_world_size, read_place
from gradwire.train.trainer import build_arguments, follow

__all__ = ["follow_recipe", "training_arguments"]


def training_arguments(folder: str | Path, **own: Any) -> Any:
    """Return the transformers.TrainingArguments of the recipe that was lowered into `folder`.

    `own` are the script's other arguments, such as output_dir and logging_steps. Once per process, and before anything
    asks for a GPU: on a CPU the Trainer would otherwise train alone in each process.
    Raises UsageError where `own` says otherwise than the recipe, or `folder` is not of this backend; EnvironmentNotFit
    where another number of processes was started, or the Trainer cannot run the plan here.
    """
    plan, path = _read(folder)
    check_world_size(plan, read_place(os.environ), os.environ)
    if plan.world.device == "cpu":
        # Read when DeepSpeed is first imported.
        os.environ["DS_ACCELERATOR"] = "cpu"
    return build_arguments(plan, path, own)


def follow_recipe(trainer: Any, folder: str | Path) -> None:
    """Have `trainer`, which has not trained yet, do what no argument says but the recipe in `folder` does.

    Gradient compression, DDP's other options, weight decay on every parameter, weights in bf16. Under ZeRO there is
    nothing left to say. Raises UsageError where `folder` is not of this backend.
    """
    plan, _ = _read(folder)
    trainer.add_callback(_Closer(follow(trainer, plan)))


class _Closer(TrainerCallback):  # type: ignore[misc]
    """Ends gradient communication with training."""

    def __init__(self, communications: list[GradientCommunication]) -> None:
        self._communications = communications

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        for communication in self._communications:
            communication.close()


def _read(folder: str | Path) -> tuple[Plan, Path]:
    plan, path = read_plan(Path(folder))
    if plan.backend != "trainer":
        raise UsageError(f"{folder} was lowered for {plan.backend}; lower it with --backend trainer")
    return plan, path
