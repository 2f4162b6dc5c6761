"""Every recipe that can be drawn from the schema loads or is refused with its fields named; nothing else is raised."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema.validators import Draft202012Validator, extend

from gradwire.documents.recipe_schema import Recipe
from gradwire.errors import InvalidRecipe
from gradwire.recipe import LoadedRecipe, check_device, load_recipe
from gradwire.recipe.conforms import conforms
from gradwire.recipe.schema_index import key_paths, recipe_schema
from tests.recipe.strategies import recipe_documents, valid_recipes

KEYS = {".".join(str(part) for part in path) for path in key_paths()}

relaxed = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("drawn") / "recipe.json"


@relaxed
@given(document=recipe_documents())
def test_a_document_that_fits_the_schema_loads_or_breaks_named_rules(recipe_file: Path, document: Any) -> None:
    recipe_file.write_text(json.dumps(document), encoding="utf-8")
    try:
        loaded = load_recipe(str(recipe_file))
        for device in ("cpu", "cuda"):
            check_device(loaded, device)
    except InvalidRecipe as error:
        assert error.violations
        for violation in error.violations:
            assert violation.path in KEYS
            assert violation.source == str(recipe_file)


@relaxed
@given(recipe=valid_recipes())
def test_a_valid_recipe_survives_writing_and_loading(recipe_file: Path, recipe: Recipe) -> None:
    recipe_file.write_bytes(msgspec.json.encode(recipe))
    loaded: LoadedRecipe = load_recipe(str(recipe_file))
    assert loaded.recipe == recipe
    assert {origin.layer for origin in loaded.origins.values()} == {"file"}


@relaxed
@given(document=recipe_documents(), data=st.data())
def test_the_quick_check_agrees_with_jsonschema(document: Any, data: st.DataObject) -> None:
    mutated = _mutate(document, data)
    assert conforms(mutated) == _reference_validator().is_valid(mutated)


ODD_VALUES = [
    None,
    True,
    False,
    0,
    -1,
    1,
    4.0,
    0.5,
    1e300,
    10**12,
    "",
    "no",
    "x" * 200,
    [],
    [0.9],
    [0.9, 1.0],
    {},
    {"a": 1},
]


def _mutate(document: Any, data: st.DataObject) -> Any:
    """Replace one value, or add one key, somewhere."""
    mutated = copy.deepcopy(document)
    paths = [*_paths(mutated, ())] or [()]
    path = data.draw(st.sampled_from(paths))
    odd = data.draw(st.sampled_from(ODD_VALUES))
    if not path:
        return odd
    holder = mutated
    for part in path[:-1]:
        holder = holder[part]
    last = data.draw(st.sampled_from([path[-1], "surprise"])) if isinstance(holder, dict) else path[-1]
    holder[last] = odd
    return mutated


def _paths(value: Any, path: tuple[str | int, ...]) -> list[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, below in items for found in [(*path, key), *_paths(below, (*path, key))]]


def _reference_validator() -> Any:
    checker = Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    )
    return extend(Draft202012Validator, type_checker=checker)(recipe_schema())  # type: ignore[no-untyped-call]
