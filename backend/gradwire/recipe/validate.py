"""Step three: the merged document against the schema, every violation at once, then the frozen dataclasses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from gradwire.documents.recipe_schema import Recipe
from gradwire.errors import InvalidRecipe, Violation
from gradwire.recipe.conforms import conforms
from gradwire.recipe.document import Path
from gradwire.recipe.merge import Merged, Origin
from gradwire.recipe.schema_index import recipe_schema
from gradwire.recipe.show import show_path, show_value
from gradwire.recipe.suggest import hint_for_choice, hint_for_key

_NAMES = {
    "object": "a mapping of keys to values",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}
_YES = frozenset({"yes", "on", "y", "true"})
_NO = frozenset({"no", "off", "n", "false"})
_NOTHING = frozenset({"none", "nil", "off", "no", "false"})
_NUMBER = re.compile(r"\s*[-+]?[0-9][0-9_,]*(\.[0-9]*)?([eE][-+]?[0-9]+)?\s*")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Finding:
    path: Path
    message: str
    at_key: bool = False


def validate(merged: Merged) -> Recipe:
    """Return the recipe that `merged` is; raises InvalidRecipe with every violation of the schema."""
    if conforms(merged.data):
        return msgspec.convert(merged.data, Recipe)
    findings = {(found.path, found.message): found for found in _find(merged.data)}
    raise InvalidRecipe(in_file_order(_violation(found, merged) for found in findings.values()))


def in_file_order(violations: Iterator[Violation]) -> list[Violation]:
    """Return the violations sorted by source, line and column; those without a place come first."""
    return sorted(violations, key=lambda found: (found.source, found.line or 0, found.column or 0))


def _violation(found: _Finding, merged: Merged) -> Violation:
    origin = _origin(found, merged)
    return Violation(
        source=origin.source,
        line=origin.line,
        column=origin.column,
        path=show_path(found.path),
        message=found.message,
    )


def _origin(found: _Finding, merged: Merged) -> Origin:
    if found.at_key or found.path not in merged.values:
        # What is missing is missing below the key of its section.
        for path in (found.path, found.path[:-1]):
            if path in merged.keys:
                return merged.keys[path]
    return merged.values[found.path]


def _find(data: Any) -> list[_Finding]:
    # 80 ms to import, so only for a document that is known to be wrong.
    from jsonschema.validators import Draft202012Validator, extend

    checker = Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    )
    validator = extend(Draft202012Validator, type_checker=checker)(recipe_schema())  # type: ignore[no-untyped-call]
    return [found for error in validator.iter_errors(data) for found in _explain(error)]


def _explain(error: Any) -> Iterator[_Finding]:
    path: Path = tuple(error.absolute_path)
    value, limit = error.instance, error.validator_value
    match error.validator:
        case "additionalProperties":
            for key in value:
                if key not in error.schema["properties"]:
                    yield _Finding(
                        path=(*path, key), message=f"unknown key ({hint_for_key((*path, key))})", at_key=True
                    )
        case "required":
            for key in limit:
                if key not in value:
                    described = error.schema["properties"][key]["description"]
                    yield _Finding(path=(*path, key), message=f"missing; {show_path(path)} needs it ({described})")
        case "anyOf":
            yield from _explain_any_of(error, path)
        case "type":
            yield _Finding(path=path, message=_type_message(value, [limit] if isinstance(limit, str) else limit))
        case "enum":
            yield _Finding(path=path, message=_enum_message(path, value, limit))
        case "minItems" | "maxItems":
            yield _Finding(path=path, message=f"{show_value(value)} has {len(value)} values; it takes {limit}")
        case keyword:
            yield _Finding(path=path, message=f"{show_value(value)} {_LIMITS[str(keyword)](limit)}")


def _explain_any_of(error: Any, path: Path) -> Iterator[_Finding]:
    """One of several shapes: what is wrong with the shape that the value has."""
    inner = [
        below
        for below in error.context or []
        if below.validator != "type" or below.absolute_path != error.absolute_path
    ]
    if inner:
        for below in inner:
            yield from _explain(below)
    else:
        yield _Finding(path=path, message=_type_message(error.instance, ["object", "null"]))


_LIMITS: dict[str, Callable[[Any], str]] = {
    "minimum": lambda limit: f"is too small; at least {limit}",
    "maximum": lambda limit: f"is too large; at most {limit}",
    "exclusiveMinimum": lambda limit: f"is too small; it must be more than {limit}",
    "exclusiveMaximum": lambda limit: f"is too large; it must be less than {limit}",
    "minLength": lambda limit: f"is too short; at least {limit} character{'' if limit == 1 else 's'}",
    "maxLength": lambda limit: f"is too long; at most {limit} characters",
}


def _type_message(value: Any, allowed: list[str]) -> str:
    wanted = " or ".join(_NAMES[kind] for kind in allowed)
    shown = "text " + show_value(value) if isinstance(value, str) else show_value(value)
    return f"{shown} is not {wanted}{_type_hint(value, allowed)}"


def _type_hint(value: Any, allowed: list[str]) -> str:
    match value:
        case None if "object" in allowed:
            return " (an empty section? remove its line, or write keys below it)"
        case str() if "null" in allowed and value.lower() in _NOTHING:
            return " (write null)"
        case None:
            return " (remove the line for the default)"
        case str() if "boolean" in allowed and value.lower() in _YES:
            return " (write true)"
        case str() if "boolean" in allowed and value.lower() in _NO:
            return " (write false)"
        case str() if {"integer", "number"} & set(allowed) and _NUMBER.fullmatch(value):
            plain = value.replace("_", "").replace(",", "").strip()
            return f" (write {plain}, without quotes or separators)"
        case float() if "integer" in allowed and value.is_integer():
            return f" (write {int(value)})"
        case 0 | 1 if "boolean" in allowed and not isinstance(value, bool):
            return f" (write {'true' if value else 'false'})"
        case int() | float() if "string" in allowed and not isinstance(value, bool):
            return " (quote it)"
        case _:
            return ""


def _enum_message(path: Path, value: Any, choices: list[Any]) -> str:
    names = [choice for choice in choices if choice is not None]
    hint = hint_for_choice(path, value, names)
    return f"{show_value(value)} is not one of {', '.join(names)}{f' ({hint})' if hint else ''}"
