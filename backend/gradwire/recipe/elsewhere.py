"""Says of a file that is no recipe what it is instead, and which verb takes it."""

from __future__ import annotations

import shlex

from gradwire.errors import Violation
from gradwire.recipe.document import Document
from gradwire.recipe.schema_index import children, homes

_PROGRAMS = {"accelerate": "Accelerate's file", "deepspeed": "DeepSpeed's file", "trainer": "the Trainer's arguments"}


def other_document(document: Document, violations: list[Violation]) -> list[Violation]:
    """Return `violations` of the recipe's schema with, in front, what `document` is where it has none of its keys."""
    names = document.data.keys()
    if names & children(()).keys():
        return violations
    if "format_version" in names:
        return [_whole(document, "is a document that Gradwire wrote; name the recipe or the preset it came from")]
    # Every broken recipe comes here, so nothing else need know it.
    from gradwire.targets.loading import foreign_kind

    # A recipe whose lines lost their indentation has words that are other programs' too.
    kind = foreign_kind(names - homes().keys())
    if kind is None:
        return violations
    way = f"`gradwire import {shlex.quote(document.source)} --out mine.yaml` makes a recipe of it"
    return [_whole(document, f"looks like {_PROGRAMS[kind]}, not a recipe: {way}"), *violations]


def _whole(document: Document, message: str) -> Violation:
    return Violation(source=document.source, line=None, column=None, path="", message=message)
