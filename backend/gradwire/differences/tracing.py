"""Says of a value that a recipe was lowered to which key of the recipe it comes from, and where that stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

from gradwire.importing.accelerate_table import carry_accelerate
from gradwire.importing.deepspeed_table import carry_deepspeed
from gradwire.importing.entry import Carried
from gradwire.importing.sharding_table import carry_fsdp
from gradwire.recipe.load import LoadedRecipe
from gradwire.targets.batch import MICRO, STEPS, TRAIN, Batch
from gradwire.targets.effective import Effective, Reading


def traced(
    values: Mapping[str, Effective], loaded: LoadedRecipe, section: Literal["deepspeed", "accelerate"]
) -> dict[str, Effective]:
    """Return the values of a lowered file with a note that names the recipe's key and its place, in no file."""
    keys = {source.path: each.path for each in _carried(values, section) for source in each.sources}
    keys |= {TRAIN: "training.batch_size_per_gpu", "num_processes": "training.num_gpus"}
    return {
        path: replace(
            value, document=None, member=None, note=_note(keys.get(path), f"backends.{section}.{path}", loaded)
        )
        for path, value in values.items()
    }


def _carried(values: Mapping[str, Effective], section: str) -> Iterator[Carried]:
    reading = Reading(values=values)
    if section == "deepspeed":
        micro, steps, train = (reading.value(path, 1) for path in (MICRO, STEPS, TRAIN))
        yield from carry_deepspeed(reading, Batch(train=train, micro=micro, accumulation=steps, ranks=1))
        return
    kind = reading.value("distributed_type")
    yield from carry_accelerate(reading, is_deepspeed=kind == "DEEPSPEED")
    if kind == "FSDP":
        yield from carry_fsdp(reading, num_processes=1, num_nodes=1)


def _note(key: str | None, own: str, loaded: LoadedRecipe) -> str:
    for path in (own, key):
        origin = loaded.origins.get(path) if path is not None else None
        if origin is not None and path is not None:
            if origin.layer == "default":
                return f"{path}, the recipe's default"
            place = origin.source if origin.line is None else f"{origin.source}:{origin.line}"
            return f"{path}, {place}"
    return "what lowering the recipe writes" if key is None else f"{key}, the recipe's default"
