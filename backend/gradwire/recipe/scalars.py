"""YAML 1.2's core schema: what an unquoted word means (YAML 1.2.2, section 10.3.2)."""

from __future__ import annotations

import re

Scalar = str | int | float | bool | None

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")

_MAX_DIGITS = 64


class UnusableNumber(ValueError):
    """A number that no field can hold; its text says why."""


def resolve_plain(text: str) -> Scalar:
    """Return the value of the unquoted scalar `text`; raises UnusableNumber for an infinite or absurdly long number."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _NOT_FINITE.fullmatch(text):
        raise UnusableNumber(f"{text} is not a finite number")
    is_float = _FLOAT.fullmatch(text) is not None
    if is_float and len(text) > _MAX_DIGITS:
        raise UnusableNumber(f"a number of {len(text)} characters is too long")
    if _DECIMAL.fullmatch(text):
        return int(text)
    if is_float:
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise UnusableNumber(f"{text} is too large for a number")
        return value
    if len(text) <= _MAX_DIGITS and (_OCTAL.fullmatch(text) or _HEXADECIMAL.fullmatch(text)):
        return int(text, 0)
    return text
