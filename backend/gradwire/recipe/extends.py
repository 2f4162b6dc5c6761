"""Step two, the first part: a reference becomes the chain of documents that it extends, the lowest first."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from gradwire.errors import InvalidRecipe, UsageError, Violation
from gradwire.presets import preset_names, preset_path
from gradwire.recipe.document import Document
from gradwire.recipe.merge import Layer
from gradwire.recipe.read import read_document
from gradwire.recipe.show import show_value

SUFFIXES = (".yaml", ".yml", ".json", ".toml")
"""A reference that ends like this is a file; everything else is a preset, unless a file of that name exists."""

MAX_CHAIN = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Located:
    """A recipe found: what it is called, where it is, and how messages name it."""

    name: str
    path: Path
    source: str
    layer: Literal["file", "preset"]


def locate(reference: str) -> Located:
    """Return where `reference`, a preset's name or a file, is; raises UsageError where it is neither.

    A preset's name wins over a file without suffix of the same name; write `./NAME` for the file.
    """
    path = Path(reference)
    is_file_name = reference.endswith(SUFFIXES) or reference.startswith(("./", "/"))
    if not is_file_name and (reference in preset_names() or not _exists(path)):
        return _locate_preset(reference)
    return Located(name=path.stem, path=path, source=reference, layer="file")


def load_layers(located: Located) -> list[Layer]:
    """Return the recipe at `located` and all that it extends as layers, the lowest first.

    Raises UsageError where a file cannot be opened, InvalidRecipe where one cannot be read or the chain is not sound.
    """
    layers: list[Layer] = []
    visited: list[Located] = []
    current: Located | None = located
    while current is not None:
        document = read_document(current.path, source=current.source)
        layers.insert(0, Layer(name=current.layer, document=document))
        visited.append(current)
        current = _next(document, current, visited)
    return layers


def _next(document: Document, current: Located, visited: list[Located]) -> Located | None:
    reference = document.data.get("extends")
    # A wrong type is the schema's to report, with all the rest.
    if not isinstance(reference, str) or not reference:
        return None
    try:
        following = _locate_extended(reference, current)
    except UsageError as error:
        _refuse(document, str(error))
    if _real(following.path) in [_real(known.path) for known in visited]:
        circle = " -> ".join([known.source for known in visited] + [following.source])
        _refuse(document, f"goes in a circle: {circle}")
    if len(visited) == MAX_CHAIN:
        _refuse(document, f"a chain of more than {MAX_CHAIN} recipes")
    return following


def _locate_extended(reference: str, current: Located) -> Located:
    if not reference.endswith(SUFFIXES):
        return _locate_preset(reference)
    path = current.path.parent / reference
    if current.layer == "preset" or not _real(path).is_relative_to(_real(current.path.parent)):
        raise UsageError(
            f"{show_value(reference)} is outside the recipe's own folder; name a preset, or a file beside it"
        )
    if not _exists(path):
        raise UsageError(f"{show_value(reference)}: no such file beside {current.source}")
    return Located(name=path.stem, path=path, source=str(path), layer="file")


def _real(path: Path) -> Path:
    """Return `path` with links followed; unlike Path.resolve, a circle of links is left as it is."""
    return Path(os.path.realpath(path))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        # Too long a name, or a circle of links.
        return False


def _locate_preset(name: str) -> Located:
    return Located(name=name, path=preset_path(name), source=f"preset {name}", layer="preset")


def _refuse(document: Document, message: str) -> NoReturn:
    place = document.value_places.get(("extends",))
    raise InvalidRecipe(
        [
            Violation(
                source=document.source,
                line=place.line if place else None,
                column=place.column if place else None,
                path="extends",
                message=message,
            )
        ]
    ) from None
