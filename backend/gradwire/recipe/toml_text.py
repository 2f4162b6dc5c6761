"""Reads TOML text; places are found line by line, best effort, and left out where the text could mislead."""

from __future__ import annotations

import math
import re
import tomllib
from typing import Any

from gradwire.errors import InvalidRecipe, Violation
from gradwire.recipe.document import Document, Path, Place
from gradwire.recipe.scalars import UnusableScalar, checked_integer, checked_text

_HEADER = re.compile(r"\s*\[([\w.-]+)\]\s*(#.*)?")
_KEY = re.compile(r"\s*([\w.-]+)\s*=\s*")
_MESSAGE = re.compile(r"(?P<what>.+) \(at line (?P<line>\d+), column (?P<column>\d+)\)")
_DEEPEST = 32


def parse_toml(text: str, *, source: str) -> Document:
    """Return the TOML document in `text`; raises InvalidRecipe for a syntax error, or where it is nested too deeply."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = _MESSAGE.fullmatch(str(error))
        message = f"not valid TOML: {at['what'] if at else error}"
        place = Place(line=int(at["line"]), column=int(at["column"])) if at else None
        raise InvalidRecipe([_violation(source, place, (), message)]) from None
    except (RecursionError, ValueError):
        # tomllib recurses per level, and int() refuses numbers of thousands of digits.
        raise InvalidRecipe([_violation(source, None, (), "nested too deeply, or a number too long")]) from None
    if not data:
        raise InvalidRecipe(
            [_violation(source, None, (), 'is empty; a recipe holds keys, for example extends = "cpu/ddp"')]
        )
    key_places, value_places = _find_places(text)
    faults: list[Violation] = []
    plain = _plain(data, (), source, value_places, faults)
    return Document(source=source, data=plain, key_places=key_places, value_places=value_places, faults=tuple(faults))


def _find_places(text: str) -> tuple[dict[Path, Place], dict[Path, Place]]:
    key_places: dict[Path, Place] = {}
    value_places: dict[Path, Place] = {}
    if '"""' in text or "'''" in text:
        return key_places, value_places
    table: Path = ()
    for number, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.fullmatch(line)
        if header:
            table = tuple(header[1].split("."))
            key_places[table] = value_places[table] = Place(line=number, column=header.start(1) + 1)
        elif key := _KEY.match(line):
            path = (*table, *key[1].split("."))
            key_places[path] = Place(line=number, column=key.start(1) + 1)
            value_places[path] = Place(line=number, column=key.end() + 1)
    return key_places, value_places


def _plain(value: Any, path: Path, source: str, places: dict[Path, Place], faults: list[Violation]) -> Any:
    """Return `value` with None for what no recipe may hold, and tell `faults` of that."""
    if len(path) > _DEEPEST:
        too_deep = f"nested deeper than {_DEEPEST} levels"
        raise InvalidRecipe([*faults, _violation(source, places.get(path[:2]), path[:2], too_deep)])
    match value:
        case dict():
            return {key: _plain(item, (*path, key), source, places, faults) for key, item in value.items()}
        case list():
            return [_plain(item, (*path, i), source, places, faults) for i, item in enumerate(value)]
    message = _what_is_wrong(value)
    if message is None:
        return value
    faults.append(_violation(source, places.get(path), path, message))
    return None


def _what_is_wrong(value: Any) -> str | None:
    match value:
        case float() if not math.isfinite(value):
            return f"{value} is not a finite number"
        case bool() | float():
            return None
        case int() | str():
            try:
                checked_integer(value) if isinstance(value, int) else checked_text(value)
            except UnusableScalar as error:
                return str(error)
            return None
        case _:
            return "dates and times have no place in a recipe; quote it"


def _violation(source: str, place: Place | None, path: Path, message: str) -> Violation:
    return Violation(
        source=source,
        line=place.line if place else None,
        column=place.column if place else None,
        path=".".join(str(part) for part in path),
        message=message,
    )
