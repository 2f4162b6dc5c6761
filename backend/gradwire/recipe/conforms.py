"""A quick yes or no to "does this document fit the schema?", so that the slow import of jsonschema waits for a no."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Literal

import msgspec

from gradwire.recipe.schema_index import Schema, allows_null, recipe_schema, resolve

_BOUNDS = {
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
    "minLength": "min_length",
    "maxLength": "max_length",
    "minItems": "min_length",
    "maxItems": "max_length",
}
_PLAIN: dict[str, Any] = {"boolean": bool, "integer": int, "number": float, "string": str}


def conforms(data: Any) -> bool:
    """Say whether `data` fits the recipe's schema; an integer written 4.0 does not."""
    try:
        _checker()(data)
    except msgspec.ValidationError:
        return False
    return True


@cache
def _checker() -> Callable[[Any], Any]:
    return functools.partial(msgspec.convert, type=_type_of(recipe_schema(), "Recipe"))


def _type_of(schema: Schema, name: str) -> Any:
    """Return the msgspec type whose values are those of `schema`."""
    shapes = [shape for shape in schema.get("anyOf", ()) if shape != {"type": "null"}]
    if len(shapes) > 1:
        either = functools.reduce(operator.or_, (_type_of(shape, name) for shape in shapes))
        return either | None if allows_null(schema) else either
    inner = resolve(schema)
    kinds = inner.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else [kind for kind in kinds if kind != "null"]
    bounds = {theirs: inner[ours] for ours, theirs in _BOUNDS.items() if ours in inner}
    if "enum" in inner:
        made: Any = Literal[tuple(choice for choice in inner["enum"] if choice is not None)]
    elif "properties" in inner:
        made = _struct_of(inner, name)
    elif kinds == ["object"]:
        made = dict[str, Any]
    elif kinds == ["array"]:
        made = list[_type_of(inner["items"], name)]  # type: ignore[misc]
    else:
        made = functools.reduce(operator.or_, (_PLAIN[kind] for kind in kinds))
    if bounds:
        made = Annotated[made, msgspec.Meta(**bounds)]
    return made | None if allows_null(schema) else made


def _struct_of(schema: Schema, name: str) -> type[msgspec.Struct]:
    required = schema.get("required", [])
    fields = [
        (key, _type_of(below, f"{name}_{key}"), *([] if key in required else [msgspec.UNSET]))
        for key, below in schema["properties"].items()
    ]
    return msgspec.defstruct(name, fields, forbid_unknown_fields=True, kw_only=True)
