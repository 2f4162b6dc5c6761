"""Says in a user's words where and why a document breaks the recipe's schema, every place at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from jsonschema.validators import Draft202012Validator, extend

from gradwire.recipe.document import Path
from gradwire.recipe.schema_index import children, recipe_schema, resolve
from gradwire.recipe.show import show_path, show_value
from gradwire.recipe.suggest import hint_for_choice, hint_for_key
from gradwire.recipe.vocabulary import OTHER_VALUES

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
_NO = frozenset({"no", "off", "n", "false", "none"})
_NOTHING = frozenset({"none", "nil", "off", "no", "false"})
_NUMBER = re.compile(r"[-+]?[0-9][0-9_,]*(\.[0-9]*)?([eE][-+]?[0-9]+)?")
# What stands around a value by mistake: quotes of a word processor, the comma of JSON, blanks.
_AROUND = " \t,;\"'\u2018\u2019\u201c\u201d"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One breach of the schema; `at_key`: the key is at fault, not its value."""

    path: Path
    message: str
    at_key: bool = False


def find(data: Any) -> list[Finding]:
    """Return all that is wrong with `data`; an integer written 4.0 is."""
    checker = Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    )
    validator = extend(Draft202012Validator, type_checker=checker)(recipe_schema())  # type: ignore[no-untyped-call]
    return [found for error in validator.iter_errors(data) for found in _explain(error)]


def _explain(error: Any) -> Iterator[Finding]:
    path: Path = tuple(error.absolute_path)
    value, limit = error.instance, error.validator_value
    match error.validator:
        case "additionalProperties":
            for key in value:
                if key not in error.schema["properties"]:
                    yield Finding(path=(*path, key), message=f"unknown key ({hint_for_key((*path, key))})", at_key=True)
        case "required":
            for key in limit:
                if key not in value:
                    described = error.schema["properties"][key]["description"]
                    yield Finding(path=(*path, key), message=f"missing; {show_path(path)} needs it ({described})")
        case "anyOf":
            yield from _explain_any_of(error, path)
        case "type":
            kinds = [limit] if isinstance(limit, str) else limit
            yield Finding(path=path, message=_type_message(value, kinds, path))
        case "enum":
            yield Finding(path=path, message=_enum_message(path, value, limit))
        case "minItems" | "maxItems":
            yield Finding(path=path, message=f"{show_value(value)} has {len(value)} values; it takes {limit}")
        case keyword:
            yield Finding(path=path, message=f"{show_value(value)} {_LIMITS[str(keyword)](limit)}")


def _explain_any_of(error: Any, path: Path) -> Iterator[Finding]:
    """One of several shapes: what is wrong with the shape that the value has, or which shapes there are."""
    by_shape: dict[int, list[Any]] = {}
    for below in error.context or []:
        by_shape.setdefault(below.schema_path[0], []).append(below)
    own = [below for errors in by_shape.values() if not any(map(_is_other_shape, errors)) for below in errors]
    if own:
        for below in own:
            yield from _explain(below)
    else:
        yield Finding(path=path, message=_shape_message(path, error.instance, error.validator_value))


def _is_other_shape(error: Any) -> bool:
    return error.validator in ("type", "enum") and not error.path


def _shape_message(path: Path, value: Any, shapes: list[Any]) -> str:
    resolved = [resolve(shape) for shape in shapes]
    words = [choice for shape in resolved for choice in shape.get("enum", ())]
    kinds = [shape["type"] for shape in resolved if "type" in shape]
    if not words:
        return _type_message(value, kinds, path)
    hint = hint_for_choice(path, value, words) if isinstance(value, str) else ""
    shown = "text " + show_value(value) if isinstance(value, str) else show_value(value)
    ways = [*(_NAMES[kind] for kind in kinds if kind != "null"), *words, *(kind for kind in kinds if kind == "null")]
    wanted = " or ".join(ways)
    return f"{shown} is not {wanted}{f' ({hint})' if hint else _type_hint(value, kinds, path)}"


_LIMITS: dict[str, Callable[[Any], str]] = {
    "minimum": lambda limit: f"is too small; at least {limit}",
    "maximum": lambda limit: f"is too large; at most {limit}",
    "exclusiveMinimum": lambda limit: f"is too small; it must be more than {limit}",
    "exclusiveMaximum": lambda limit: f"is too large; it must be less than {limit}",
    "multipleOf": lambda limit: f"is not a multiple of {limit}",
    "minLength": lambda limit: f"is too short; at least {limit} character{'' if limit == 1 else 's'}",
    "maxLength": lambda limit: f"is too long; at most {limit} characters",
}


def _type_message(value: Any, allowed: list[str], path: Path) -> str:
    wanted = " or ".join(_NAMES[kind] for kind in allowed)
    shown = "text " + show_value(value) if isinstance(value, str) else show_value(value)
    return f"{shown} is not {wanted}{_type_hint(value, allowed, path)}"


def _type_hint(value: Any, allowed: list[str], path: Path) -> str:
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
        case str() if {"integer", "number"} & set(allowed) and _NUMBER.fullmatch(value.strip(_AROUND)):
            plain = value.strip(_AROUND).replace("_", "").replace(",", "")
            return f" (write {plain}, without quotes or separators)"
        case str() if "array" in allowed and "," in value:
            return f" (write [{value.strip('()[]{} ')}])"
        case str() | bool() if "object" in allowed:
            return f" ({_section_hint(value, path)})"
        case float() if "integer" in allowed and value.is_integer():
            return f" (write {int(value)})"
        case 0 | 1 if "boolean" in allowed and not isinstance(value, bool):
            return f" (write {'true' if value else 'false'})"
        case int() | float() if "string" in allowed and not isinstance(value, bool):
            return " (quote it)"
        case _:
            return ""


def _section_hint(value: str | bool, path: Path) -> str:
    """What to write where a section should stand: the key that `value` is a choice of, or that keys go below."""
    if isinstance(value, str) and re.search(r"\w:\S", value):
        return "a space is missing after the ':'"
    for key, schema in children(path).items():
        choices = [choice for choice in resolve(schema).get("enum", ()) if isinstance(choice, str)]
        known = OTHER_VALUES.get(show_path((*path, key)), {})
        word = str(value).lower()
        choice = next((choice for choice in choices if choice.lower() == word), known.get(word))
        if choice in choices:
            return f"write {{{key}: {choice}}}"
    return "write its keys below it, or remove the line"


def _enum_message(path: Path, value: Any, choices: list[Any]) -> str:
    names = [str(choice) for choice in choices if choice is not None]
    hint = hint_for_choice(path, value, names)
    return f"{show_value(value)} is not one of {', '.join(names)}{f' ({hint})' if hint else ''}"
