"""Reads numbers as people write them in tables: separators, prefixes, units; what could be two numbers is refused."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Literal

# Squares and ratios of these, times any number of GPUs, stay finite.
LEAST_RATE, LARGEST_RATE = 1e-30, 1e30

# Python's float() also reads 1_000, nan and infinity.
PLAIN_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_SPACES = " \u00a0\u2009\u202f"
_GROUPS = f"{_SPACES}'\u2019"
_Convention = Literal["point", "comma"]
# What stands before the decimals; the other of the two may part groups of three digits.
_WRITTEN: dict[_Convention, re.Pattern[str]] = {
    "point": re.compile(rf"{PLAIN_NUMBER.pattern}|[+-]?\d{{1,3}}([,{_GROUPS}]\d{{3}})+(\.\d*)?", re.ASCII),
    "comma": re.compile(rf"[+-]?(\d+(,\d*)?|\d{{1,3}}([.{_GROUPS}]\d{{3}})+(,\d*)?)", re.ASCII),
}
# A rate, maybe with a prefix (a small m is a thousandth, and no rate is meant by it) and a unit.
_RATE = re.compile(
    rf"(?P<number>[+-]?[\d.,eE+{_GROUPS}-]*[\d.,])[{_SPACES}]*(?P<prefix>[kKMGT]?)[{_SPACES}]*(?P<unit>[^\d{_SPACES}].*)?",
    re.ASCII,
)
_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_UNIT = re.compile(
    r"(?P<what>tok(?:en)?s?|samples?|seq(?:uence)?s?|im(?:a)?ge?s?|examples?)?\s*(?:/|per\s)\s*s(?:ec(?:ond)?)?"
)
_SIZE = re.compile(r"(?P<number>\d{1,9})(?:\.0*)?\s*(?:x|gpus?|devices?|ranks?|processes)?", re.ASCII | re.IGNORECASE)
_MISSING = frozenset(
    (
        *("", "-", "--", "na", "n/a", "nan", "none", "null"),
        *("oom", "out of memory", "fail", "failed", "error", "crash", "crashed", "timeout", "killed"),
    )
)
Value = object


def read_size(value: Value) -> int | str:
    """Return a number of GPUs, written as 8, 8.0, `8 GPUs` or 8x; else why it is none."""
    number = value
    if isinstance(value, str) and (found := _SIZE.fullmatch(value.strip())):
        number = int(found["number"])
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    if isinstance(number, int) and not isinstance(number, bool) and 1 <= number < 10**9:
        return number
    return f"{_shown(value)} is not a whole number of GPUs, at least 1"


def read_rates(values: Sequence[Value]) -> list[float | str | None]:
    """Return for each of a column's values its rate, or why it is none, or None where there is no value (a failed run).

    A column has one way of writing numbers: 1,234.5 in one place tells what 1,234 is in another. Where nothing tells,
    1,234 is refused. Units must be the same in the whole column.
    """
    written = [_RATE.fullmatch(value.strip()) if isinstance(value, str) else None for value in values]
    numbers = [match["number"].strip() for match in written if match]
    convention = _convention(numbers)
    units = list(dict.fromkeys(_unit(match["unit"]) for match in written if match and match["unit"]))
    return [
        None if _is_missing(value) else _rate(value, match, convention, [unit for unit in units if unit is not None])
        for value, match in zip(values, written, strict=True)
    ]


def _convention(numbers: Sequence[str]) -> _Convention | None:
    """What stands before decimals in the column; None where both could, and would mean different numbers."""
    fitting = [name for name, pattern in _WRITTEN.items() if all(map(pattern.fullmatch, numbers))]
    if len(fitting) == 1:
        return fitting[0]
    # Without a comma a number is a plain one; a bad value among others does not decide for them.
    return None if any("," in number for number in numbers) else "point"


def _rate(
    value: Value, match: re.Match[str] | None, convention: _Convention | None, units: Sequence[str]
) -> float | str:
    number: Value = value
    if match is not None:
        read = _number(match["number"].strip(), convention)
        if isinstance(read, str):
            return read
        unit = match["unit"]
        if unit and _unit(unit) is None:
            return f"{_shown(value)} is not a rate: {unit.strip()!r} is no unit of work per second, such as tokens/s"
        if len(units) > 1:
            return f"{_shown(value)}: the column mixes {' and '.join(units)}"
        number = None if read is None else read * _PREFIXES[match["prefix"]]
    if isinstance(number, (int, float)) and not isinstance(number, bool):
        try:
            rate = float(number)
        except OverflowError:
            rate = math.inf
        if LEAST_RATE <= rate <= LARGEST_RATE:
            return rate
        if math.isfinite(rate) and rate > 0:
            return f"{_shown(value)} is not from {LEAST_RATE:g} to {LARGEST_RATE:g}; give it in another unit"
    return f"{_shown(value)} is not a finite number above 0 (k, M, G or T may follow it, and a unit such as tokens/s)"


def _number(text: str, convention: _Convention | None) -> float | str | None:
    """The number; why it could be two; None where it is none."""
    if convention is None:
        readings = [_plain(text, each) for each in _WRITTEN if _WRITTEN[each].fullmatch(text)]
        if len(set(readings)) > 1:
            return (
                f"{text!r} could be {' or '.join(f'{reading:.10g}' for reading in readings)}; write it without "
                "separators, and a point before decimals"
            )
        return readings[0] if readings else None
    return _plain(text, convention) if _WRITTEN[convention].fullmatch(text) else None


def _plain(text: str, convention: _Convention) -> float:
    grouped = "," if convention == "point" else "."
    without = text.translate({ord(sign): None for sign in grouped + _GROUPS})
    return float(without.replace(",", "."))


def _unit(text: str) -> str | None:
    """The unit in one spelling; None where it is none."""
    found = _UNIT.fullmatch(text.strip().lower())
    if found is None:
        return None
    # What is counted, by its first letters: tok, sam, seq, img, exa.
    what = (found["what"] or "")[:3]
    return f"{'img' if what == 'ima' else what}/s"


def _is_missing(value: Value) -> bool:
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or (isinstance(value, str) and value.strip().lower() in _MISSING)


def _shown(value: Value) -> str:
    return "nothing" if value is None or value == "" else repr(value)[:40]
