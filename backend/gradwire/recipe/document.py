"""What reading gives: plain data, and the place of every key and value in its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gradwire.errors import Violation

Path = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where something stands in a text; both count from 1."""

    line: int
    column: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A mapping of plain data (str, int, float, bool, None, list, dict) read from `source`.

    `key_places` and `value_places` lead from a path to its place; a path is absent where the place is not known.
    `faults` are values and keys that no recipe may have, but that leave the rest readable: such a value is None.
    """

    source: str
    data: dict[str, Any]
    key_places: Mapping[Path, Place] = field(default_factory=dict)
    value_places: Mapping[Path, Place] = field(default_factory=dict)
    faults: tuple[Violation, ...] = ()


def place_of_offset(text: str, offset: int) -> Place:
    """Return the place of the character at `offset` of `text`."""
    line_start = text.rfind("\n", 0, offset) + 1
    return Place(line=text.count("\n", 0, offset) + 1, column=offset - line_start + 1)
