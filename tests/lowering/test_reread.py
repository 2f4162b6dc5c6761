"""What was written is what the targets' own loaders read: presets, drawn recipes, and files that somebody changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradwire.artifact import Artifact, write_artifact
from gradwire.documents.lowering_schema import Reread
from gradwire.documents.plan_schema import Plan
from gradwire.documents.recipe_schema import Recipe
from gradwire.errors import CannotLower, InvalidRecipe
from gradwire.lowering import Placement, lower
from gradwire.lowering.fields import recipe_paths
from gradwire.plan import BACKENDS, Backend, Device, settle
from gradwire.presets import preset_names
from gradwire.recipe import Override, load_recipe
from gradwire.recipe.rules import broken_rules
from tests.lowering.drawing import METHOD, STRATEGY, lowered
from tests.lowering.loader import Loader, running_loader
from tests.recipe.strategies import valid_recipes

pytest.importorskip("accelerate", reason="the loaders of accelerate and deepspeed are compared with")
pytest.importorskip("deepspeed", reason="the loaders of accelerate and deepspeed are compared with")


SIZES = ("1", "2", "4", "8", "16", "128")


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loader]:
    with running_loader(tmp_path_factory.mktemp("lowerings")) as running:
        yield running


def assert_read_back(loader: Loader, artifact: Artifact) -> None:
    reread = loader.read(artifact)
    assert reread.values, artifact.report.backend
    assert [value for value in reread.values if not value.equal] == []
    assert reread.status == "equal"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("preset", preset_names())
def test_the_loader_reads_every_preset_as_planned_at_every_size(loader: Loader, preset: str, backend: Backend) -> None:
    read = 0
    for size in SIZES:
        try:
            loaded = load_recipe(preset, overrides=[Override(path="training.num_gpus", text=size, option="--num-gpus")])
        except InvalidRecipe:
            continue
        device = loaded.recipe.training.device or "cuda"
        for nodes in {1, -(-int(size) // 8)}:
            plan = settle(loaded.recipe, recipe_name=loaded.name, backend=backend, device=device, num_nodes=nodes)
            placement = Placement(out_folder=PurePath("out"), rendezvous="10.0.0.1:29400" if nodes > 1 else None)
            # What the backend cannot express takes the nearest value, and that has to be valid too.
            assert_read_back(loader, lower(plan, placement=placement, allow_lossy=True))
            read += 1
    assert read >= 3, "hardly any size is valid"


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(recipe=valid_recipes(), backend=st.sampled_from(BACKENDS), num_nodes=st.sampled_from([1, 1, 1, 2]))
def test_a_drawn_recipe_is_read_back_as_planned_or_refused_by_name(
    loader: Loader, recipe: Recipe, backend: Backend, num_nodes: int
) -> None:
    if recipe.training.num_gpus % num_nodes:
        num_nodes = 1
    device: Device = recipe.training.device or "cpu"
    plan = settle(recipe, recipe_name="drawn", backend=backend, device=device, num_nodes=num_nodes)
    placement = Placement(out_folder=PurePath("out"), rendezvous="10.0.0.1:29400")
    try:
        artifact = lower(plan, placement=placement)
    except CannotLower as error:
        refused = [line.split(": ")[0].strip() for line in str(error).splitlines()[1:-1]]
        assert refused
        assert set(refused) <= set(recipe_paths())
        artifact = lower(plan, placement=placement, allow_lossy=True)
        assert {f.path for f in artifact.report.fields if f.outcome == "refused"} >= set(refused)
        written = msgspec.json.decode(artifact.files["plan.json"], type=Plan)
        assert broken_rules(written.recipe) == [], "what it fell back to is no valid recipe"
    assert len(artifact.report.fields) == len(recipe_paths())
    assert_read_back(loader, artifact)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(recipe=valid_recipes(), backend=st.sampled_from(BACKENDS))
def test_a_drawn_recipe_gives_the_same_bytes_twice(recipe: Recipe, backend: Backend) -> None:
    plan = settle(recipe, recipe_name="drawn", backend=backend, device=recipe.training.device or "cpu")
    again = msgspec.json.decode(msgspec.json.encode(plan), type=Plan)
    placement = Placement(out_folder=PurePath("out"))
    first = lower(plan, placement=placement, allow_lossy=True)
    assert first.files == lower(again, placement=placement, allow_lossy=True).files


@pytest.mark.parametrize(
    ("backend", "values"),
    [
        ("deepspeed", {"backends.deepspeed": {"zero_optimization": {"reduce_bucket_size": 1000}}, STRATEGY: "zero2"}),
        ("deepspeed", {METHOD: "fp16"}),
        ("accelerate", {"backends.deepspeed": {"communication_data_type": "fp32"}, STRATEGY: "zero1"}),
        ("accelerate", {"backends.accelerate": {"gpu_ids": "0,1"}}),
        ("accelerate", {"training.precision": "bf16-mixed", "training.fp8": "transformer-engine"}),
        ("accelerate", {"training.precision": "bf16-mixed", "training.fp8": "torchao"}),
        ("accelerate", {"training.compile": True, "training.compile_fullgraph": True}),
        ("trainer", {"training.compile": True, "training.compile_fullgraph": True}),
        *(
            (backend, {**values, STRATEGY: strategy})
            for backend, strategy in (("accelerate", "ddp"), ("accelerate", "zero3"), ("trainer", "ddp"))
            for values in (
                {"training.compile": True},
                {
                    "training.compile": True,
                    "training.compile_mode": "max-autotune",
                    "training.compile_dynamic": True,
                    "training.compile_regional": False,
                },
            )
        ),
    ],
)
def test_a_recipes_own_keys_are_what_is_planned(loader: Loader, backend: Backend, values: dict[str, Any]) -> None:
    assert_read_back(loader, lowered(backend, values))


def replaced(artifact: Artifact, name: str, text: str) -> Artifact:
    return replace(artifact, files={**artifact.files, name: text})


def test_a_value_that_the_loader_reads_differently_is_found(loader: Loader) -> None:
    artifact = lowered("deepspeed", {"training.gradient_clip": 0.5})
    document = json.loads(artifact.files["deepspeed.json"])
    del document["gradient_clipping"]
    reread = loader.read(replaced(artifact, "deepspeed.json", json.dumps(document)))
    [different] = [value for value in reread.values if not value.equal]
    assert (different.name, different.planned, different.loaded) == ("gradient_clipping", 0.5, 1.0)
    assert reread.status == "different"


def test_a_file_that_the_loader_refuses_is_different_with_its_reason(loader: Loader) -> None:
    artifact = lowered("deepspeed", {"backends.deepspeed": {"zero_optimization": {"sub_group_size": -1}}})
    reread = loader.read(artifact)
    assert reread.status == "different"
    assert "sub_group_size" in str(reread.values[0].loaded)


def test_an_unquoted_no_would_be_found(loader: Loader) -> None:
    artifact = lowered("accelerate")
    text = artifact.files["accelerate.yaml"].replace("mixed_precision: 'no'", "mixed_precision: no")
    assert text != artifact.files["accelerate.yaml"]
    assert loader.read(replaced(artifact, "accelerate.yaml", text)).status == "different"


def reread_command(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gradwire.train.reread", str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "DS_ACCELERATOR": "cpu"},
    )


def test_the_command_prints_the_document_and_nothing_else(tmp_path: Path) -> None:
    write_artifact(lowered("deepspeed"), tmp_path / "out")
    ended = reread_command(tmp_path / "out")
    assert ended.returncode == 0, ended.stderr
    assert msgspec.json.decode(ended.stdout, type=Reread).status == "equal"


def test_a_folder_without_a_lowering_is_a_usage_error(tmp_path: Path) -> None:
    ended = reread_command(tmp_path)
    assert ended.returncode == 2
    assert "holds no lowering" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
