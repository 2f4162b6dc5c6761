"""Accounts for every recipe field: its path, its value, what became of it and what carries it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import msgspec

from gradwire.documents.lowering_schema import FieldOutcome
from gradwire.documents.recipe_schema import Recipe
from gradwire.resources import schema_text


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of one recipe field on one backend; the words are those of lowering.json."""

    kind: Literal["exact", "emulated", "unused"]
    carrier: str | None = None
    note: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """One recipe field that a backend cannot express.

    `limit` says why; `nearest` is the nearest thing that it can do; `fallback` is that thing as recipe values by
    dotted path, which `--allow-lossy` applies.
    """

    path: str
    limit: str
    nearest: str
    fallback: Mapping[str, Any]


def exact(carrier: str, note: str | None = None) -> Outcome:
    """The field means the same there."""
    return Outcome(kind="exact", carrier=carrier, note=note)


def emulated(carrier: str, note: str) -> Outcome:
    """The field is reached another way; `note` says how and what differs."""
    return Outcome(kind="emulated", carrier=carrier, note=note)


def unused(note: str | None = None, *, carrier: str | None = None) -> Outcome:
    """The recipe does not ask for the field here."""
    return Outcome(kind="unused", carrier=carrier, note=note)


@cache
def recipe_paths() -> tuple[str, ...]:
    """Return the dotted path of every leaf of the recipe, in the schema's order."""
    schema = json.loads(schema_text("recipe"))
    return tuple(_leaf_paths(schema, schema["$defs"], ""))


def read_path(recipe: Recipe, path: str) -> Any:
    """Return the value at the dotted `path`; None below a section that is absent."""
    value: Any = recipe
    for name in path.split("."):
        value = None if value is None else getattr(value, name)
    return value


def with_values(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """Return `recipe` with the values at the given dotted paths replaced."""
    document = msgspec.to_builtins(recipe)
    for path, value in values.items():
        *parents, last = path.split(".")
        section = document
        for name in parents:
            section = section[name]
        section[last] = value
    return msgspec.convert(document, Recipe)


def account(recipe: Recipe, outcomes: Mapping[str, Outcome], refusals: Sequence[Refusal] = ()) -> list[FieldOutcome]:
    """Return one entry for every leaf of the recipe, in the schema's order.

    `recipe` is the one that was asked for; where `refusals` names a field, that entry says so.
    Raises KeyError when a backend forgot a field or made one up: that is a bug of ours, not of the recipe.
    """
    unknown = outcomes.keys() - set(recipe_paths())
    if unknown:
        raise KeyError(f"not fields of the recipe: {sorted(unknown)}")
    refused: dict[str, list[Refusal]] = {}
    for refusal in refusals:
        refused.setdefault(refusal.path, []).append(refusal)
    return [_entry(path, read_path(recipe, path), outcomes[path], refused.get(path, ())) for path in recipe_paths()]


def _entry(path: str, value: Any, outcome: Outcome, refusals: Sequence[Refusal]) -> FieldOutcome:
    if refusals:
        note = "; ".join(f"{refusal.limit}; lowered as {refusal.nearest} with --allow-lossy" for refusal in refusals)
        return FieldOutcome(path=path, value=value, outcome="refused", carrier=None, note=note)
    return FieldOutcome(path=path, value=value, outcome=outcome.kind, carrier=outcome.carrier, note=outcome.note)


def _leaf_paths(section: Mapping[str, Any], definitions: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, schema in section["properties"].items():
        path = f"{prefix}{name}"
        references = [option["$ref"] for option in (schema, *schema.get("anyOf", ())) if "$ref" in option]
        if not references:
            yield path
        for reference in references:
            yield from _leaf_paths(definitions[reference.removeprefix("#/$defs/")], definitions, f"{path}.")
