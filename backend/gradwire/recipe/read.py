"""Step one: a file becomes plain data with places; whatever cannot be read safely is refused with its place."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from gradwire.errors import InvalidRecipe, UsageError, Violation
from gradwire.reading import read_encoded
from gradwire.recipe.document import Document, Place, place_of_offset
from gradwire.recipe.scalars import UNPRINTABLE

MAX_BYTES = 256 * 1024
"""Largest recipe that is read: a thousand times a usual one."""


def read_document(path: Path, *, source: str) -> Document:
    """Return the recipe document in the file at `path`; `source` is what messages call it.

    YAML 1.2 (JSON is YAML), or TOML where the suffix is `.toml`. Raises UsageError when the file cannot be
    opened, InvalidRecipe when it is not one mapping of plain data.
    """
    text = _decode(_read_bytes(path, source), source)
    if path.suffix.lower() == ".toml":
        from gradwire.recipe.toml_text import parse_toml

        return parse_toml(text, source=source)
    from gradwire.recipe.yaml_text import parse_yaml

    return parse_yaml(text, source=source)


def _read_bytes(path: Path, source: str) -> bytes:
    try:
        return read_encoded(path, max_bytes=MAX_BYTES, what="a recipe")
    except UsageError as error:
        hint = "; launch.sh in it starts what was lowered" if _was_lowered(path) else ""
        raise UsageError(f"{source}: {error}{hint}") from None


def _was_lowered(path: Path) -> bool:
    try:
        return (path / "plan.json").is_file()
    except OSError:
        # Too long a name, or a folder that may not be read: why the recipe could not be either.
        return False


def _decode(content: bytes, source: str) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8-sig", errors="replace")
        _refuse(
            source,
            place_of_offset(before, len(before)),
            f"byte 0x{content[error.start]:02x} is not UTF-8; save it as UTF-8",
        )
    odd = UNPRINTABLE.search(text)
    if odd:
        _refuse(
            source,
            place_of_offset(text, odd.start()),
            f"control character U+{ord(odd.group()):04X} is not allowed in a recipe; is this a text file?",
        )
    return text


def _refuse(source: str, place: Place, message: str) -> NoReturn:
    raise InvalidRecipe([Violation(source=source, line=place.line, column=place.column, path="", message=message)])
