"""Documents in files: each bad one beside its exact message, each good one beside the values that it must give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gradwire.documents.recipe_schema import Recipe
from gradwire.errors import InvalidRecipe, UsageError
from gradwire.recipe import load_recipe
from gradwire.recipe.extends import load_layers, locate
from gradwire.recipe.merge import merge
from gradwire.recipe.rules import DEVICE_RULES, RULES

CASES = Path(__file__).parent.parent / "cases" / "recipes"
BAD = sorted(path.name for path in (CASES / "bad").iterdir() if path.suffix != ".txt")
GOOD = sorted(path.name for path in (CASES / "good").iterdir() if path.is_file() and ".expected." not in path.name)


def test_there_are_cases() -> None:
    assert len(BAD) > 50
    assert len(GOOD) > 5


@pytest.mark.parametrize("name", BAD)
def test_bad_recipe_gives_exactly_its_message(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CASES / "bad")
    with pytest.raises(UsageError) as caught:
        load_recipe(name)
    assert f"{caught.value}\n" == Path(f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", GOOD)
def test_good_recipe_gives_its_values(name: str) -> None:
    loaded = load_recipe(str(CASES / "good" / name))
    document = msgspec.to_builtins(loaded.recipe)
    expected: dict[str, Any] = json.loads((CASES / "good" / f"{name}.expected.json").read_text(encoding="utf-8"))
    assert {path: _value(document, path) for path in expected} == expected
    assert set(expected) <= set(loaded.origins)


def test_every_rule_has_a_case_that_breaks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CASES / "bad")
    recipes = [recipe for name in BAD if (recipe := _fits_schema(name))]
    unbroken = [rule.__name__ for rule in RULES if not any(rule(recipe) for recipe in recipes)]
    unbroken += [rule.__name__ for rule in DEVICE_RULES if not any(rule(recipe, "cpu") for recipe in recipes)]
    assert unbroken == []


def _fits_schema(name: str) -> Recipe | None:
    try:
        return msgspec.convert(merge(load_layers(locate(name))).data, Recipe)
    except (UsageError, msgspec.ValidationError):
        return None


def _value(document: Any, path: str) -> Any:
    for part in path.split("."):
        document = document[part]
    return document


def test_violations_carry_the_parts_of_their_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CASES / "bad")
    with pytest.raises(InvalidRecipe) as caught:
        load_recipe("unknown-key-misspelt.yaml")
    first = caught.value.violations[0]
    assert (first.source, first.line, first.column) == ("unknown-key-misspelt.yaml", 2, 3)
    assert first.path == "training.gradient_acumulation"
