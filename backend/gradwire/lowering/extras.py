"""Merges a recipe's own keys for one backend into that backend's file, and refuses those that contradict the recipe."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Set
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from gradwire.lowering.fields import Refusal

# What the recipe decides, by dotted key of the target file: (recipe field, value in the target's spelling).
Decided = Mapping[str, tuple[str, Any]]

_ABSENT = object()


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """The file that extras go into: its name, the keys it knows, what the recipe decides and what it forbids.

    `known_below` lists the keys of those sections whose unknown keys the target would drop without a word.
    `forbidden` maps a top-level key to the reason why the recipe has no room for it.
    """

    section: str
    file: str
    known: Set[str]
    decided: Decided
    forbidden: Mapping[str, str]
    known_below: Mapping[str, Set[str]]


def refuse_extras(extras: Mapping[str, Any], target: Target) -> list[Refusal]:
    """Return a refusal of every key of `extras` that is unknown, forbidden, left to be filled in, or contradictory."""
    complaints = list(_complaints(extras, target))
    kept = deepcopy(dict(extras))
    for key, _, _ in complaints:
        _remove(kept, key)
    path = f"backends.{target.section}"
    return [Refusal(path=path, limit=limit, nearest=nearest, fallback={path: kept}) for _, limit, nearest in complaints]


def merge_extras(document: Mapping[str, Any], extras: Mapping[str, Any]) -> dict[str, Any]:
    """Return `document` with `extras` merged over it, section by section."""
    merged = dict(document)
    for key, value in extras.items():
        present = merged.get(key)
        merged[key] = (
            merge_extras(present, value) if isinstance(present, Mapping) and isinstance(value, Mapping) else value
        )
    return merged


def dotted_keys(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Return each leaf of `document` as (dotted key, value); an empty section is a leaf."""
    for key, value in document.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from dotted_keys(value, f"{path}.")
        else:
            yield path, value


def _complaints(extras: Mapping[str, Any], target: Target) -> Iterator[tuple[str, str, str]]:
    for key, value in extras.items():
        if key not in target.known:
            yield _unknown(key, key, target.known, target.file)
        elif key in target.forbidden:
            yield key, f"{key}: {target.forbidden[key]}", f"{key} left out"
        elif isinstance(value, Mapping):
            yield from _nested_complaints(key, value, target)
        else:
            # A plain value in place of a section would wipe out what the recipe decides below it.
            below = [(path, decided) for path, decided in target.decided.items() if path.startswith(f"{key}.")]
            for path, (field, decided_value) in below[:1]:
                limit = f"{key} is {value!r}, but {path} is {decided_value!r} by {field}"
                yield key, limit, f"{key} left out"
            if not below:
                yield from _value_complaint(key, value, target)


def _nested_complaints(key: str, section: Mapping[str, Any], target: Target) -> Iterator[tuple[str, str, str]]:
    known = target.known_below.get(key)
    unknown = [name for name in section if known is not None and name not in known]
    for name in unknown:
        yield _unknown(f"{key}.{name}", name, known or (), f"{key} in {target.file}")
    for path, value in dotted_keys({name: section[name] for name in section if name not in unknown}, f"{key}."):
        yield from _value_complaint(path, value, target)


def _unknown(path: str, name: str, known: Iterable[str], place: str) -> tuple[str, str, str]:
    near = difflib.get_close_matches(name, sorted(known), n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return path, f"{path}: no key of {place}{hint}", f"{path} left out"


def _value_complaint(path: str, value: Any, target: Target) -> Iterator[tuple[str, str, str]]:
    field, decided_value = target.decided.get(path, (None, _ABSENT))
    if value == "auto":
        yield path, f"{path} is 'auto', which only other libraries fill in", f"{path} left out"
    elif field is not None and value != decided_value:
        limit = f"{path} is {value!r}, but {field} makes it {decided_value!r}"
        yield path, limit, f"{path}: {decided_value!r} (change {field})"


def _remove(document: dict[str, Any], path: str) -> None:
    *parents, last = path.split(".")
    for name in parents:
        document = document[name]
    document.pop(last, None)
