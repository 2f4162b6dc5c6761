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

_MAX_CHARACTERS = 64

LARGEST_INTEGER = 2**63 - 1
"""What JSON readers of other tools, and 64-bit fields, can hold."""

# What YAML 1.2.2, production 1, leaves out of c-printable (surrogates cannot come out of UTF-8).
UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]|\ufffe|\uffff")


class UnusableScalar(ValueError):
    """A value that no field can hold; its text says why."""


def resolve_plain(text: str) -> Scalar:
    """Return the value of the unquoted scalar `text`; raises UnusableScalar for an infinite or absurdly long number."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _NOT_FINITE.fullmatch(text):
        raise UnusableScalar(f"{text} is not a finite number")
    is_float = _FLOAT.fullmatch(text) is not None
    if is_float and len(text) > _MAX_CHARACTERS:
        raise UnusableScalar(f"a number of {len(text)} characters is too long")
    if _DECIMAL.fullmatch(text):
        return checked_integer(int(text))
    if is_float:
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise UnusableScalar(f"{text} is too large for a number")
        return value
    if len(text) <= _MAX_CHARACTERS and (_OCTAL.fullmatch(text) or _HEXADECIMAL.fullmatch(text)):
        return checked_integer(int(text, 0))
    return text


def resolve_quoted(text: str) -> str:
    """Return the text of a quoted scalar; raises UnusableScalar for characters that only an escape can write."""
    try:
        # A double-quoted JSON string may write one character as two \\u escapes.
        whole = text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise UnusableScalar("half of a surrogate pair (\\ud800 to \\udfff) is not a character") from None
    return checked_text(whole)


def checked_text(text: str) -> str:
    """Return `text`; raises UnusableScalar for a control character, on which a terminal or a path would act."""
    odd = UNPRINTABLE.search(text)
    if odd:
        raise UnusableScalar(f"control character U+{ord(odd.group()):04X} is not allowed in a value")
    return text


def checked_integer(value: int) -> int:
    """Return `value`; raises UnusableScalar where it does not fit 64 bits."""
    if abs(value) > LARGEST_INTEGER:
        raise UnusableScalar(f"{value} does not fit a 64-bit integer")
    return value
