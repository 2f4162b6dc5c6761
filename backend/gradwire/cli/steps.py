"""The steps that verbs share: arguments -> recipe -> plan -> artifact."""

from __future__ import annotations

import argparse
import os
from pathlib import PurePath
from typing import TYPE_CHECKING, cast

from gradwire.launch.probe import count_device_files, count_visible

if TYPE_CHECKING:
    from gradwire.artifact import Artifact
    from gradwire.documents.plan_schema import Plan
    from gradwire.plan import Backend, Device
    from gradwire.recipe import LoadedRecipe


def load(reference: str, arguments: argparse.Namespace) -> LoadedRecipe:
    """Return the recipe `reference` names, with --set, --num-gpus and --device on top; later options win."""
    from gradwire.recipe import Override, load_recipe, parse_set

    overrides = [parse_set(text) for text in arguments.sets]
    num_gpus = getattr(arguments, "num_gpus", None)
    if num_gpus is not None:
        overrides.append(Override(path="training.num_gpus", text=str(num_gpus), option="--num-gpus"))
    if arguments.device is not None:
        overrides.append(Override(path="training.device", text=arguments.device, option="--device"))
    return load_recipe(reference, overrides=overrides)


def device_of(loaded: LoadedRecipe) -> Device:
    """Return the recipe's device; where it names none, cuda on a machine that has one, else cpu."""
    if loaded.recipe.training.device is not None:
        return loaded.recipe.training.device
    from pathlib import Path

    present = count_device_files(Path("/dev"))
    return "cuda" if count_visible(present, os.environ.get("CUDA_VISIBLE_DEVICES")) else "cpu"


def lower_loaded(
    loaded: LoadedRecipe, arguments: argparse.Namespace, *, backend: str, folder: PurePath, allow_lossy: bool = False
) -> tuple[Plan, Artifact]:
    """Return the plan of a loaded recipe on `backend` and its artifact for the output folder `folder`."""
    from gradwire.lowering import Placement, lower
    from gradwire.plan import settle

    plan = settle(
        loaded.recipe,
        recipe_name=loaded.name,
        backend=cast("Backend", backend),
        device=device_of(loaded),
        num_nodes=getattr(arguments, "num_nodes", 1),
    )
    placement = Placement(
        out_folder=folder,
        node_rank=getattr(arguments, "node_rank", 0),
        rendezvous=getattr(arguments, "rdzv", None),
    )
    artifact = lower(plan, placement=placement, program=getattr(arguments, "program", None), allow_lossy=allow_lossy)
    return plan, artifact
