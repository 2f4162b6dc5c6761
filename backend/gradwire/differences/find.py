"""Finds where two sides differ in what they end up with; two recipes by their own keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gradwire.differences.difference import Difference, Value
from gradwire.differences.sides import Side
from gradwire.recipe.load import LoadedRecipe
from gradwire.targets.equality import same


def differences(a: Side, b: Side) -> list[Difference]:
    """Return where two sides differ after defaults; two recipes by their own keys, else by the backends' values.

    Raises UsageError where the sides have nothing in common, or a program refuses a file.
    """
    if a.recipe is not None and b.recipe is not None:
        return list(_of_recipes(a.recipe, b.recipe))
    # Two recipes need nothing of what reads and lowers the files of other programs.
    from gradwire.differences.compare import differences_of_values

    return differences_of_values(a, b)


def _of_recipes(a: LoadedRecipe, b: LoadedRecipe) -> Iterator[Difference]:
    left, right = (dict(_leaves(msgspec.to_builtins(each.recipe), "")) for each in (a, b))
    for path in sorted({*left, *right}, key=lambda each: (each.split(".")[0] == "backends", each)):
        if path in ("extends", "summary") or same(left.get(path), right.get(path)):
            continue
        yield Difference(about="recipe", path=path, a=_recipe_value(a, left, path), b=_recipe_value(b, right, path))


def _recipe_value(loaded: LoadedRecipe, values: Mapping[str, Any], path: str) -> Value:
    origin = loaded.origins.get(path)
    if origin is None or origin.layer == "default":
        return Value(value=values.get(path), origin="the recipe's default")
    return Value(
        value=values.get(path), origin=origin.layer, file=origin.source, line=origin.line, column=origin.column
    )


def _leaves(section: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in section.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        elif value != {}:
            yield f"{prefix}{name}", value
