"""The recipe's schema as a tree that can be asked: what may stand at a path, and where a key name belongs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from gradwire.recipe.document import Path
from gradwire.resources import schema_text

Schema = dict[str, Any]


@cache
def recipe_schema() -> Schema:
    """Return the JSON Schema of a recipe."""
    schema: Schema = json.loads(schema_text("recipe"))
    return schema


def resolve(schema: Schema) -> Schema:
    """Return `schema` with its own reference, or the one of its branch that is not null, followed."""
    if "anyOf" in schema:
        return resolve(next(branch for branch in schema["anyOf"] if branch != {"type": "null"}))
    if "$ref" in schema:
        target: Schema = recipe_schema()["$defs"][schema["$ref"].removeprefix("#/$defs/")]
        return target
    return schema


def allows_null(schema: Schema) -> bool:
    """Say whether null is a value of `schema`."""
    kind = schema.get("type")
    return (
        {"type": "null"} in schema.get("anyOf", ())
        or (isinstance(kind, list) and "null" in kind)
        or None in schema.get("enum", ())
    )


def children(path: Path) -> dict[str, Schema]:
    """Return the keys that may stand below `path`, with their schemas; empty where `path` holds no closed mapping."""
    schema = recipe_schema()
    for part in path:
        below = resolve(schema).get("properties", {})
        if part not in below:
            return {}
        schema = below[part]
    properties: dict[str, Schema] = resolve(schema).get("properties", {})
    return properties


def key_paths(path: Path = ()) -> Iterator[Path]:
    """Yield the path of every key of the schema, in the schema's order, sections before what they hold."""
    for key in children(path):
        yield (*path, key)
        yield from key_paths((*path, key))


@cache
def homes() -> dict[str, list[Path]]:
    """Return, for each key name, the paths at which the schema has it."""
    found: dict[str, list[Path]] = {}
    for path in key_paths():
        found.setdefault(str(path[-1]), []).append(path)
    return found
