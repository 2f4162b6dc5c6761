"""Imports configurations that are written in a test."""

from __future__ import annotations

import json
from typing import Any

from gradwire.documents.recipe_schema import Recipe
from gradwire.importing.engine import Imported, import_job
from gradwire.importing.entry import Entry
from gradwire.importing.recipe_text import recipe_text
from gradwire.recipe.load import load_text
from gradwire.targets.job import Job, LaunchFacts
from gradwire.targets.loading import parse_document
from gradwire.targets.tree import Document, Kind

SOUND: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 1.0,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "weight_decay": 0.1}},
}


def document(config: dict[str, Any] | str, kind: Kind) -> Document:
    """A configuration as a document: a mapping is written as JSON, a text is read as it stands."""
    text = config if isinstance(config, str) else json.dumps(config, indent=1)
    name = {"deepspeed": "ds.json", "accelerate": "accelerate.yaml", "trainer": "trainer.json"}[kind]
    parsed = parse_document(text, source=name, kind=kind)
    assert isinstance(parsed, Document), parsed
    return parsed


def job(
    deepspeed: dict[str, Any] | str | None = None,
    *,
    accelerate: str | None = None,
    trainer: dict[str, Any] | None = None,
    facts: LaunchFacts | None = None,
) -> Job:
    """A job of these files on two processes, or as `facts` say."""
    return Job(
        deepspeed=None if deepspeed is None else document(deepspeed, "deepspeed"),
        accelerate=None if accelerate is None else document(accelerate, "accelerate"),
        trainer=None if trainer is None else document(trainer, "trainer"),
        facts=facts or LaunchFacts(num_processes=None if accelerate else 2),
    )


def text_of(imported: Imported, imported_from: Job) -> str:
    """The text of the recipe."""
    files = (imported_from.accelerate, imported_from.deepspeed, imported_from.trainer)
    return recipe_text(imported, [each for each in files if each is not None])


def import_(one: Job, *, allow_lossy: bool = False) -> tuple[Recipe, dict[str, Entry], str]:
    """The recipe as it is read back from its text, the entries by path, and the text."""
    imported = import_job(one, allow_lossy=allow_lossy)
    text = text_of(imported, one)
    entries = {entry.path: entry for entry in imported.entries}
    return load_text(text, source="imported.yaml").recipe, entries, text
