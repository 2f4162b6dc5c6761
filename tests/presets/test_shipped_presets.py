"""Every preset loads, says what it is for, and fits the sizes that it is for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gradwire.errors import UsageError
from gradwire.plan import settle
from gradwire.presets import preset_names, preset_path, preset_summaries
from gradwire.recipe import Override, load_recipe
from gradwire.resources import presets_folder, schemas_folder

NAMES = preset_names()
CPU = [name for name in NAMES if name.startswith("cpu/")]

PROMISED = {
    "h100-128", "h100-8-powersgd", "h100-8-overlap", "h100-16-pipeline", "zero1", "zero2", "zero3", "fsdp",
    "cpu/ddp", "cpu/powersgd", "cpu/overlap", "cpu/pipeline", "cpu/zero1", "cpu/zero2", "cpu/zero3", "cpu/fsdp",
}  # fmt: skip


def test_the_promised_presets_ship() -> None:
    assert set(NAMES) >= PROMISED


@pytest.mark.parametrize("name", NAMES)
def test_preset_loads_on_the_device_that_it_names(name: str) -> None:
    recipe = load_recipe(name).recipe
    assert recipe.training.device == ("cpu" if name in CPU else "cuda")
    settle(recipe, recipe_name=name, backend="native", device=recipe.training.device)


@pytest.mark.parametrize("name", CPU)
@pytest.mark.parametrize("size", [1, 2, 4])
def test_cpu_preset_fits_one_two_and_four_processes(name: str, size: int) -> None:
    override = Override(path="training.num_gpus", text=str(size), option="--num-gpus")
    assert load_recipe(name, overrides=[override]).recipe.training.num_gpus == size


@pytest.mark.parametrize("name", NAMES)
def test_preset_says_what_it_is_for_and_what_to_change_first(name: str) -> None:
    text = preset_path(name).read_text(encoding="utf-8")
    assert "\n# For: " in text
    assert "\n# Change first: " in text


@pytest.mark.parametrize("name", NAMES)
def test_first_line_leads_editors_to_the_schema(name: str) -> None:
    path = preset_path(name)
    link = os.path.relpath(schemas_folder() / "recipe.schema.json", path.parent)
    assert path.read_text(encoding="utf-8").splitlines()[0] == f"# yaml-language-server: $schema={link}"


def test_summaries_found_without_a_parser_are_those_of_the_recipes() -> None:
    summaries = preset_summaries()
    assert summaries == [(name, load_recipe(name).recipe.summary) for name in NAMES]
    assert all(summary for _, summary in summaries)


def test_h100_128_is_the_recipe_of_the_readme() -> None:
    training = load_recipe("h100-128").recipe.training
    assert (training.precision, training.optimizer, training.learning_rate) == ("bf16-true", "Adam", 3e-4)
    assert (training.weight_decay, training.gradient_clip) == (0.1, 1.0)
    assert (training.batch_size_per_gpu, training.gradient_accumulation, training.num_gpus) == (16, 8, 128)
    assert training.flash_attention
    assert training.gradient_checkpointing
    assert training.compile


def test_name_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    for name in ("../presets/zero1", "/etc/passwd", "cpu/../zero1", f"{presets_folder()}/zero1", "cpu//ddp", ".", ""):
        with pytest.raises(UsageError, match="preset"):
            preset_path(name)


def test_misspelt_name_is_met_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"did you mean cpu/powersgd\?"):
        preset_path("cpu/power-sgd")
