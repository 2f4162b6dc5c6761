"""A reference and overrides become a valid recipe: read, extend, override, validate, check the rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gradwire.documents.recipe_schema import Recipe
from gradwire.errors import InvalidRecipe, Violation
from gradwire.recipe.broken import Broken, Device
from gradwire.recipe.document import Path
from gradwire.recipe.elsewhere import other_document
from gradwire.recipe.extends import load_layers, locate
from gradwire.recipe.merge import Layer, LayerName, Merged, Origin, merge
from gradwire.recipe.overrides import Override, override_layer
from gradwire.recipe.rules import broken_device_rules, broken_rules
from gradwire.recipe.show import show_path
from gradwire.recipe.validate import in_file_order, validate

_LAST_WRITTEN: tuple[LayerName, ...] = ("command line", "file", "preset", "default")
_DEFAULT = Origin(source="schema default", line=None, column=None, layer="default")


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedRecipe:
    """A resolved recipe that passed its schema and every rule.

    `name` is the preset's name or the file's without its suffix; `origins` leads from the dotted path of
    every leaf (a value that is no mapping) to where the value came from.
    """

    name: str
    recipe: Recipe
    origins: Mapping[str, Origin]


def load_recipe(reference: str, *, overrides: Sequence[Override] = ()) -> LoadedRecipe:
    """Return the recipe that `reference`, a preset's name or a file, and `overrides` give.

    Precedence: a later override > an earlier one > the file > what it extends > the schema's default. Where the
    recipe names its device, the device's rules are checked too; else see `check_device`.
    Raises InvalidRecipe with every violation, UsageError where there is nothing to read.
    """
    located = locate(reference)
    layers = load_layers(located)
    merged = merge([*layers, *(override_layer(override) for override in overrides)])
    try:
        recipe = validate(merged)
    except InvalidRecipe as error:
        raise InvalidRecipe(other_document(layers[-1].document, error.violations)) from None
    loaded = LoadedRecipe(name=located.name, recipe=recipe, origins=_origins(recipe, merged))
    _raise_broken(broken_rules_of(recipe, recipe.training.device), loaded)
    return loaded


def load_text(text: str, *, source: str) -> LoadedRecipe:
    """Return the recipe that YAML text which extends nothing gives; `source` is what messages call it.

    Raises InvalidRecipe with every violation.
    """
    from gradwire.recipe.yaml_text import parse_yaml

    merged = merge([Layer(name="file", document=parse_yaml(text, source=source))])
    recipe = validate(merged)
    loaded = LoadedRecipe(name=source, recipe=recipe, origins=_origins(recipe, merged))
    _raise_broken(broken_rules_of(recipe, recipe.training.device), loaded)
    return loaded


def broken_rules_of(recipe: Recipe, device: Device | None) -> list[Broken]:
    """Return every rule that a recipe breaks, those of `device` too where that is known."""
    return broken_rules(recipe) + (broken_device_rules(recipe, device) if device else [])


def check_device(loaded: LoadedRecipe, device: Device) -> None:
    """Raise InvalidRecipe where the recipe breaks a rule of `device`, settled by the caller."""
    _raise_broken(broken_device_rules(loaded.recipe, device), loaded)


def _raise_broken(broken: Sequence[Broken], loaded: LoadedRecipe) -> None:
    if broken:
        raise InvalidRecipe(in_file_order(_violation(rule, loaded.origins) for rule in broken))


def _violation(broken: Broken, origins: Mapping[str, Origin]) -> Violation:
    # Of the values that contradict each other, the one written last is the one to mend; a default is nobody's line.
    path = min(broken.paths, key=lambda candidate: _LAST_WRITTEN.index(_origin_at(candidate, origins).layer))
    origin = _origin_at(path, origins)
    return Violation(
        source=origin.source,
        line=origin.line,
        column=origin.column,
        path=path,
        message=broken.message,
        url=broken.url,
    )


def _origin_at(path: str, origins: Mapping[str, Origin]) -> Origin:
    return origins.get(path, _DEFAULT)


def _origins(recipe: Recipe, merged: Merged) -> dict[str, Origin]:
    return {show_path(path): merged.values.get(path, _DEFAULT) for path in _leaves(msgspec.to_builtins(recipe), ())}


def _leaves(value: Any, path: Path) -> Iterator[Path]:
    if not isinstance(value, dict) or not value:
        yield path
        return
    for key, below in value.items():
        yield from _leaves(below, (*path, key))
