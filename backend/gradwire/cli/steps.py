"""The steps that verbs share: arguments -> recipe -> plan -> artifact -> files that were read back."""

from __future__ import annotations

import argparse
import os
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, cast

from gradwire.launch.probe import count_device_files, count_visible

if TYPE_CHECKING:
    from gradwire.artifact import Artifact
    from gradwire.documents.plan_schema import Plan
    from gradwire.plan import Backend, Device
    from gradwire.recipe import LoadedRecipe


def load(reference: str, arguments: argparse.Namespace, *, num_gpus: int | None = None) -> LoadedRecipe:
    """Return the recipe `reference` names, with --set, then --num-gpus and --device on top.

    `num_gpus` stands for --num-gpus where a verb takes a list of them.
    """
    from gradwire.recipe import Override, load_recipe, parse_set

    overrides = [parse_set(text) for text in arguments.sets]
    size = num_gpus if num_gpus is not None else arguments.num_gpus
    if isinstance(size, int):
        overrides.append(Override(path="training.num_gpus", text=str(size), option="--num-gpus"))
    if arguments.device is not None:
        overrides.append(Override(path="training.device", text=arguments.device, option="--device"))
    return load_recipe(reference, overrides=overrides)


def device_of(loaded: LoadedRecipe) -> Device:
    """Return the recipe's device; where it names none, cuda on a machine that has one, else cpu."""
    if loaded.recipe.training.device is not None:
        return loaded.recipe.training.device
    present = count_device_files(Path("/dev"))
    return "cuda" if count_visible(present, os.environ.get("CUDA_VISIBLE_DEVICES")) else "cpu"


def lower_loaded(
    loaded: LoadedRecipe, arguments: argparse.Namespace, *, backend: str, folder: PurePath, allow_lossy: bool = False
) -> tuple[Plan, Artifact]:
    """Return the plan of a loaded recipe on `backend` and its artifact for the output folder `folder`.

    Machines and the user's own script come from `arguments`, for verbs that have those options.
    """
    from gradwire.lowering import Placement, lower
    from gradwire.plan import settle
    from gradwire.recipe import check_device

    device = device_of(loaded)
    if loaded.recipe.training.device is None:
        check_device(loaded, device)
    options = vars(arguments)
    plan = settle(
        loaded.recipe,
        recipe_name=loaded.name,
        backend=cast("Backend", backend),
        device=device,
        num_nodes=options.get("num_nodes", 1),
    )
    placement = Placement(out_folder=folder, node_rank=options.get("node_rank", 0), rendezvous=options.get("rdzv"))
    artifact = lower(plan, placement=placement, program=options.get("program"), allow_lossy=allow_lossy)
    return plan, artifact


def write_and_reread(artifact: Artifact, folder: Path) -> Artifact:
    """Write `artifact` into `folder`, have the target's own loader read it back, and write that into lowering.json."""
    from gradwire.artifact import with_reread, write_artifact
    from gradwire.launch.reread import reread

    write_artifact(artifact, folder)
    artifact = with_reread(artifact, reread(folder, artifact.environment))
    write_artifact(artifact, folder)
    return artifact
