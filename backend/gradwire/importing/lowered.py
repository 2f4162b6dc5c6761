"""Lowers a recipe and reads the files back as their programs would, to see what an imported recipe has come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import msgspec

from gradwire.artifact import ACCELERATE_FILE, DEEPSPEED_FILE, TRAINER_FILE, Artifact
from gradwire.documents.recipe_schema import Recipe
from gradwire.lowering import Placement, lower
from gradwire.plan import Backend, Device, settle
from gradwire.targets.accelerate_effective import read_accelerate
from gradwire.targets.batch import Batch, batch_of
from gradwire.targets.comparable import comparable_deepspeed
from gradwire.targets.deepspeed_effective import read_deepspeed
from gradwire.targets.effective import Effective
from gradwire.targets.job import Job
from gradwire.targets.loading import parse_document
from gradwire.targets.tree import Document, Kind

_KINDS: dict[str, Kind] = {DEEPSPEED_FILE: "deepspeed", ACCELERATE_FILE: "accelerate", TRAINER_FILE: "trainer"}
_RENDEZVOUS = "localhost:29500"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """What a recipe is lowered for: the backend, the kind of device, and the machines."""

    backend: Backend
    device: Device
    num_nodes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LoweredValues:
    """What the programs end up with from a lowered recipe; None: the recipe makes no such file."""

    deepspeed: Mapping[str, Effective] | None
    accelerate: Mapping[str, Effective] | None
    trainer: Mapping[str, Effective] | None
    recipe: Recipe


def recipe_of(values: Mapping[tuple[str, ...], Any]) -> Recipe:
    """Return the recipe with these values, by path; everything else is the schema's default."""
    return msgspec.convert(nested(values), Recipe)


def nested(values: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """Return values by path as nested mappings."""
    document: dict[str, Any] = {}
    for path, value in values.items():
        section = document
        for name in path[:-1]:
            section = section.setdefault(name, {})
        section[path[-1]] = value
    return document


def lower_for(recipe: Recipe, target: Target, *, allow_lossy: bool = False) -> Artifact:
    """Return the files of a recipe; raises CannotLower, and UsageError where the recipe does not settle."""
    plan = settle(
        recipe, recipe_name="imported", backend=target.backend, device=target.device, num_nodes=target.num_nodes
    )
    rendezvous = _RENDEZVOUS if target.num_nodes > 1 else None
    return lower(plan, placement=Placement(out_folder=PurePath("out"), rendezvous=rendezvous), allow_lossy=allow_lossy)


def read_lowered(artifact: Artifact, recipe: Recipe, target: Target) -> LoweredValues:
    """Return what DeepSpeed and Accelerate would make of an artifact's files."""
    deepspeed, accelerate, trainer = (_document(artifact, name) for name in _KINDS)
    job = Job(deepspeed=deepspeed, accelerate=accelerate, trainer=trainer)
    reading = read_deepspeed(deepspeed, job) if deepspeed is not None else None
    batch = batch_of(reading, recipe.training.num_gpus) if reading is not None else None
    return LoweredValues(
        deepspeed=None
        if reading is None
        else comparable_deepspeed(reading, batch if isinstance(batch, Batch) else None),
        accelerate=None if accelerate is None else read_accelerate(accelerate, job).values,
        trainer=None if trainer is None else trainer_values(trainer),
        recipe=recipe,
    )


def trainer_values(document: Document) -> dict[str, Effective]:
    """Return the Trainer's arguments as they are written."""
    return {
        name: Effective(path=name, value=member.node.data, origin="written", document=document, member=member)
        for name, member in (document.root.members or {}).items()
    }


def _document(artifact: Artifact, name: str) -> Document | None:
    text = artifact.files.get(name)
    if text is None:
        return None
    document = parse_document(text, source=name, kind=_KINDS[name])
    if not isinstance(document, Document):
        raise ValueError(f"a file of our own cannot be read: {document}")
    return document
