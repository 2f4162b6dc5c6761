"""The door for a user's own script: `from_recipe` returns Accelerate's `Accelerator`, ready as the recipe says.

Accelerate's YAML has no key for DDP's options, gradient compression, accumulation, clipping or the optimizer. This
carries them (compression from the moment that `prepare` wraps the model), so that a script started with
`accelerate launch --config_file OUT/accelerate.yaml` trains what the recipe says:

    run = from_recipe("OUT")
    model = run.adapt(model)
    optimizer = run.optimizer(model.parameters())
    model, optimizer, loader = run.accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        with run.accumulate(model):
            loss = model(**batch).loss
            run.accelerator.backward(loss)
            run.clip(model)
            optimizer.step()
            optimizer.zero_grad()
    run.end()
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import torch

from gradwire.documents.plan_schema import Plan
from gradwire.errors import UsageError
from gradwire.plan import settle
from gradwire.recipe import Override, load_recipe, parse_set
from gradwire.train.accelerator import RecipeAccelerator
from gradwire.train.accelerator_start import build_accelerator
from gradwire.train.reading import read_plan
from gradwire.train.setting import check_world_size, read_place

__all__ = ["RecipeAccelerator", "from_recipe"]


def from_recipe(reference: str | Path, *, overrides: Sequence[str] = ()) -> RecipeAccelerator:
    """Return the Accelerator for `reference` and the recipe's own calls beside it; once per process.

    `reference` is the folder that `gradwire lower --backend accelerate` wrote (or its plan.json), a preset's name,
    or a recipe file. From a folder, the number of processes must be the plan's. From a recipe it is however many
    were started, and `overrides` ("training.learning_rate=1e-4") come last, as `--set` does.

    Raises UsageError for a reference or an override that cannot be used, EnvironmentNotFit where Accelerate cannot
    run it here, or was launched with another configuration than the recipe's.
    """
    place = read_place(os.environ)
    path = Path(reference)
    if path.is_dir() or path.name == "plan.json":
        if overrides:
            raise UsageError(f"{path} is settled already: give the overrides to `gradwire lower`, or name the recipe")
        plan, folder = read_plan(path)
        if plan.backend != "accelerate":
            raise UsageError(f"{path} was lowered for {plan.backend}; lower it with --backend accelerate")
        check_world_size(plan, place, os.environ)
        return build_accelerator(plan, folder)
    return build_accelerator(_settle(str(reference), overrides, place.world_size), None)


def _settle(reference: str, overrides: Sequence[str], world_size: int) -> Plan:
    started = Override(path="training.num_gpus", text=str(world_size), option="the number of started processes")
    loaded = load_recipe(reference, overrides=[*map(parse_set, overrides), started])
    if loaded.recipe.parallelism.pipeline is not None:
        raise UsageError(f"{reference}: Accelerate has no pipeline; train it with gradwire.train, --backend native")
    device = loaded.recipe.training.device or ("cuda" if torch.cuda.is_available() else "cpu")
    return settle(loaded.recipe, recipe_name=loaded.name, backend="accelerate", device=device)
