"""What a library makes of a value: takes it, takes it for something else, or refuses it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from gradwire.targets.schema import Spec

Outcome = Literal["refused", "replaced", "out of range"]

# What pydantic's lax mode takes for a boolean (pydantic-core, `str_as_bool`).
_TRUE_WORDS = frozenset({"1", "true", "t", "yes", "y", "on"})
_FALSE_WORDS = frozenset({"0", "false", "f", "no", "n", "off"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Misfit:
    """A value that is not of its key's type: what becomes of it, what was expected, and what it turns into."""

    outcome: Outcome
    expected: str
    becomes: Any = None


def types_of(spec: Spec) -> list[str]:
    """JSON type names that a key takes; the union of its alternatives."""
    if "type" in spec:
        kinds = spec["type"]
        return list(kinds) if isinstance(kinds, list) else [kinds]
    if "enum" in spec:
        return ["enum"]
    if "$ref" in spec:
        return ["object"]
    return [kind for part in spec.get("anyOf", ()) for kind in (["const"] if "const" in part else types_of(part))]


def describe(spec: Spec) -> str:
    """What a key takes, in words."""
    if "enum" in spec:
        return "one of " + ", ".join("null" if value is None else str(value) for value in spec["enum"])
    names = {
        "integer": "a whole number",
        "number": "a number",
        "boolean": "true or false",
        "string": "text",
        "array": "a list",
        "object": "a mapping",
        "null": "null",
    }
    words = [names[kind] for kind in types_of(spec) if kind in names and not (kind == "string" and spec.get("pattern"))]
    if spec.get("pattern") == "^auto$":
        words.append('"auto"')
    limits = [f"{word} {spec[key]}" for key, word in _LIMITS.items() if key in spec]
    return " or ".join(dict.fromkeys(words)) + (f", {' and '.join(limits)}" if limits else "")


_LIMITS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
}


def in_range(spec: Spec, value: float) -> bool:
    """Whether a number is within the limits of its key."""
    low, above = spec.get("minimum", -math.inf), spec.get("exclusiveMinimum", -math.inf)
    high, below = spec.get("maximum", math.inf), spec.get("exclusiveMaximum", math.inf)
    return bool(low <= value <= high and above < value < below)


def pydantic_misfit(spec: Spec, value: Any) -> Misfit | None:
    """What a pydantic model of DeepSpeed does with a value; None: it takes it as it stands.

    The word "auto" is dropped before the model sees it and is not for this function.
    """
    expected = describe(spec)
    kinds = types_of(spec)
    if value is None:
        optional = "null" in kinds or None in spec.get("enum", ()) or spec.get("default", 0) is None
        return None if optional else Misfit(outcome="refused", expected=expected)
    if "enum" in spec:
        return _pydantic_enum(spec, value, expected)
    if "anyOf" in spec and isinstance(value, str):
        words = [part["const"] for part in spec["anyOf"] if "const" in part]
        return None if value in words else Misfit(outcome="refused", expected=expected)
    if "anyOf" in spec:
        parts = [part for part in spec["anyOf"] if "const" not in part]
        found = [pydantic_misfit(part, value) for part in parts]
        return None if None in found else found[0]
    outcomes = [_pydantic_kind(kind, spec, value, expected) for kind in kinds if kind != "null"]
    if not outcomes or None in outcomes:
        return None
    return next((each for each in outcomes if each and each.outcome == "replaced"), outcomes[0])


def _pydantic_enum(spec: Spec, value: Any, expected: str) -> Misfit | None:
    if value in spec["enum"] and not isinstance(value, bool):
        return None
    number = _as_number(value)
    if number is not None and number in spec["enum"]:
        return None if isinstance(value, float) else Misfit(outcome="replaced", expected=expected, becomes=int(number))
    return Misfit(outcome="refused", expected=expected)


def _pydantic_kind(kind: str, spec: Spec, value: Any, expected: str) -> Misfit | None:
    refused = Misfit(outcome="refused", expected=expected)
    match kind:
        case "boolean":
            return _as_boolean(value, expected)
        case "integer" | "number":
            number = _as_number(value)
            if number is None or (kind == "integer" and not is_whole(number)):
                return refused
            if isinstance(value, str) and kind == "integer" and not _is_whole_text(value):
                return refused
            if spec.get("x-strict") and (
                isinstance(value, bool) or (kind == "integer" and "." in str(value) and isinstance(value, str))
            ):
                return refused
            if not in_range(spec, number):
                return refused
            if isinstance(value, str | bool):
                return Misfit(
                    outcome="replaced", expected=expected, becomes=int(number) if kind == "integer" else number
                )
            return None
        case "string":
            return None if isinstance(value, str) and not spec.get("pattern") else refused
        case "array":
            allowed = spec.get("items", {}).get("enum")
            known = isinstance(value, list) and (allowed is None or all(item in allowed for item in value))
            return None if known else refused
        case _:
            return None if isinstance(value, dict) else refused


def is_whole(value: Any) -> bool:
    """Whether a value is a number without a fraction, booleans among them."""
    # math.isfinite overflows at an integer above every float.
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def is_written_as_text(text: str) -> bool:
    """Whether a text is a number, or a word for true or false."""
    return _as_number(text) is not None or text.strip().lower() in _TRUE_WORDS | _FALSE_WORDS


def _is_whole_text(text: str) -> bool:
    whole, _, fraction = text.strip().removeprefix("-").removeprefix("+").partition(".")
    return whole.isdigit() and not fraction.strip("0")


def _as_number(value: Any) -> float | None:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return None


def _as_boolean(value: Any, expected: str) -> Misfit | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float) and value in (0, 1):
        return None
    word = value.strip().lower() if isinstance(value, str) else None
    if word in _TRUE_WORDS or word in _FALSE_WORDS:
        return Misfit(outcome="replaced", expected=expected, becomes=word in _TRUE_WORDS)
    return Misfit(outcome="refused", expected=expected)


def plain_misfit(spec: Spec, value: Any) -> Misfit | None:
    """What DeepSpeed's hand-read sections do with a value: none is checked, so text is true and breaks arithmetic."""
    expected = describe(spec)
    kinds = types_of(spec)
    if value is None:
        harmless = "null" in kinds or None in spec.get("enum", ()) or (kinds == ["boolean"] and "x-text" not in spec)
        return None if harmless else Misfit(outcome="refused", expected=expected)
    if "enum" in spec:
        return _plain_enum(spec, value, expected)
    if isinstance(value, str):
        if "string" in kinds and (not spec.get("pattern") or value == "auto"):
            return None
        if "boolean" in kinds:
            outcome: Outcome = "refused" if spec.get("x-text") == "refused" else "replaced"
            return Misfit(outcome=outcome, expected=expected, becomes=bool(value))
        return None if "const" in kinds and value == "auto" else Misfit(outcome="refused", expected=expected)
    if isinstance(value, dict | list):
        return (
            None
            if ("object" if isinstance(value, dict) else "array") in kinds
            else Misfit(outcome="refused", expected=expected)
        )
    if "boolean" in kinds:
        if isinstance(value, bool) or (value in (0, 1) and isinstance(value, int)):
            return None
        refused = "x-text" in spec and isinstance(value, float)
        return Misfit(outcome="refused" if refused else "replaced", expected=expected, becomes=bool(value))
    if not {"integer", "number"} & set(kinds):
        return Misfit(outcome="refused", expected=expected)
    if isinstance(value, bool):
        return Misfit(outcome="replaced", expected=expected, becomes=int(value))
    whole = "number" in kinds or is_whole(value)
    return None if whole and in_range(spec, value) else Misfit(outcome="out of range", expected=expected)


def _plain_enum(spec: Spec, value: Any, expected: str) -> Misfit | None:
    allowed = spec["enum"]
    if value in allowed:
        return None
    if isinstance(value, str) and spec.get("x-case") == "any":
        folded = {each.lower() for each in allowed if isinstance(each, str)}
        if value.lower() in folded:
            return None
    return Misfit(outcome="refused", expected=expected)


def written_number(text: str) -> str | None:
    """A number as every version of YAML reads it, of a text such as 1e-4; None where it is none."""
    try:
        number = float(text)
    except ValueError:
        return None
    # nan, and 1e400, which no float holds, cannot be written in another way.
    if not math.isfinite(number):
        return None
    return str(int(number)) if number.is_integer() else f"{Decimal(text.strip()):f}"
