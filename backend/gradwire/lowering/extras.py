"""Merges a recipe's own keys for one backend into that backend's file, and refuses those that contradict the recipe."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping, Set
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from gradwire.lowering.fields import Refusal
from gradwire.recipe.show import show_value

# What the recipe decides, by dotted key of the target file: (recipe field, value in the target's spelling).
Decided = Mapping[str, tuple[str, Any]]


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
    for complaint in complaints:
        _remove(kept, complaint.path)
    section = f"backends.{target.section}"
    return [
        Refusal(path=section, limit=complaint.limit, nearest=complaint.nearest, fallback={section: kept})
        for complaint in complaints
    ]


def merge_extras(document: Mapping[str, Any], extras: Mapping[str, Any]) -> dict[str, Any]:
    """Return `document` with `extras` merged over it, section by section."""
    merged = dict(document)
    for key, value in extras.items():
        present = merged.get(key)
        if isinstance(present, Mapping) and isinstance(value, Mapping):
            merged[key] = merge_extras(present, value)
        else:
            merged[key] = value
    return merged


def dotted_keys(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return each leaf of `document` as (dotted key, value); an empty section is a leaf."""
    for path, value in _leaves(document, ()):
        yield ".".join(path), value


@dataclass(frozen=True, kw_only=True, slots=True)
class _Complaint:
    path: tuple[str, ...]
    limit: str
    nearest: str


def _leaves(document: Mapping[str, Any], parents: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in document.items():
        path = (*parents, key)
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, path)
        else:
            yield path, value


def _complaints(extras: Mapping[str, Any], target: Target) -> Iterator[_Complaint]:
    for key, value in extras.items():
        if key not in target.known:
            yield _unknown((key,), target.known, target.file)
        elif key in target.forbidden:
            yield _without((key,), f"{key}: {target.forbidden[key]}")
        elif isinstance(value, Mapping):
            yield from _complaints_below(key, value, target)
        else:
            yield from _complaints_of_value(key, value, target)


def _complaints_of_value(key: str, value: Any, target: Target) -> Iterator[_Complaint]:
    below = next((path for path in target.decided if path.startswith(f"{key}.")), None)
    if below is None:
        yield from _contradictions((key,), value, target)
    else:
        # A plain value in place of a section would wipe out what the recipe decides in it.
        field, decided = target.decided[below]
        yield _without((key,), f"{key} is {show_value(value)}, but {below} is {show_value(decided)} by {field}")


def _complaints_below(key: str, section: Mapping[str, Any], target: Target) -> Iterator[_Complaint]:
    known = target.known_below.get(key)
    for name, value in section.items():
        if known is not None and name not in known:
            yield _unknown((key, name), known, f"{key} in {target.file}")
        else:
            for path, leaf in _leaves({name: value}, (key,)):
                yield from _contradictions(path, leaf, target)


def _contradictions(path: tuple[str, ...], value: Any, target: Target) -> Iterator[_Complaint]:
    key = ".".join(path)
    if value == "auto":
        yield _without(path, f"{key} is 'auto', which only other libraries fill in")
    elif isinstance(value, float) and not math.isfinite(value):
        yield _without(path, f"{key} is {value}, which JSON cannot say")
    elif key in target.decided:
        field, decided = target.decided[key]
        # True equals 1 in Python, but not to every loader.
        if value != decided or isinstance(value, bool) != isinstance(decided, bool):
            limit = f"{key} is {show_value(value)}, but {field} makes it {show_value(decided)}"
            yield _Complaint(path=path, limit=limit, nearest=f"{key} left out, so that {field} alone decides it")


def _unknown(path: tuple[str, ...], known: Set[str], place: str) -> _Complaint:
    near = difflib.get_close_matches(path[-1], sorted(known), n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return _without(path, f"{'.'.join(path)}: no key of {place}{hint}")


def _without(path: tuple[str, ...], limit: str) -> _Complaint:
    return _Complaint(path=path, limit=limit, nearest=f"{'.'.join(path)} left out")


def _remove(document: dict[str, Any], path: tuple[str, ...]) -> None:
    *parents, last = path
    for name in parents:
        document = document[name]
    document.pop(last, None)
