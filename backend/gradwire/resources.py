"""Finds the shipped schemas and presets, in an installed wheel or in a checkout."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


@cache
def _folder(name: str) -> Path:
    installed = _PACKAGE / "_data" / name
    if installed.is_dir():
        return installed
    return _PACKAGE.parent.parent / name


def schemas_folder() -> Path:
    """Folder that holds `KIND.schema.json` for every document kind."""
    return _folder("schemas")


def presets_folder() -> Path:
    """Folder that holds the presets; a preset's name is its path below it without the suffix."""
    return _folder("presets")


def schema_kinds() -> list[str]:
    """Names of the document kinds that have a schema, sorted."""
    return sorted(path.name.removesuffix(".schema.json") for path in schemas_folder().glob("*.schema.json"))


def schema_text(kind: str) -> str:
    """Text of the JSON Schema of one document kind; raises FileNotFoundError for an unknown kind."""
    return (schemas_folder() / f"{kind}.schema.json").read_text(encoding="utf-8")
