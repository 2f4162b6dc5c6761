"""Drawn recipes: lowered, imported and lowered again they end up with the same values, by Gradwire's own reading and
by the real loader's."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gradwire.artifact import ACCELERATE_FILE, DEEPSPEED_FILE, TRAINER_FILE, Artifact
from gradwire.documents.recipe_schema import Recipe
from gradwire.errors import UsageError
from gradwire.importing.engine import import_job
from gradwire.importing.lowered import Target, lower_for, read_lowered
from gradwire.lowering import Placement, lower
from gradwire.plan import Backend, Device, settle
from gradwire.recipe.load import load_text
from gradwire.recipe.rules import broken_device_rules
from gradwire.targets.accelerate_effective import accelerate_default
from gradwire.targets.comparable import differing
from gradwire.targets.deepspeed_effective import default_of
from gradwire.targets.job import Job, LaunchFacts
from gradwire.targets.loading import parse_document
from gradwire.targets.tree import Document, Kind
from tests.importing.importing import text_of
from tests.importing.real_values import acting
from tests.lint.oracle_client import Oracle
from tests.lowering.drawing import STRATEGY, lowered
from tests.recipe.strategies import valid_recipes

_ONCE_PER_JOB = ("deepspeed_config.deepspeed_config_file",)


def _document(artifact: Artifact, name: str, kind: Kind) -> Document | None:
    text = artifact.files.get(name)
    parsed = None if text is None else parse_document(text, source=name, kind=kind)
    assert parsed is None or isinstance(parsed, Document)
    return parsed


def _again(artifact: Artifact, target: Target, num_gpus: int) -> tuple[Artifact, Recipe]:
    """Import an artifact's files and lower the recipe."""
    job = Job(
        deepspeed=_document(artifact, DEEPSPEED_FILE, "deepspeed"),
        accelerate=_document(artifact, ACCELERATE_FILE, "accelerate"),
        facts=LaunchFacts(num_processes=num_gpus, num_machines=target.num_nodes),
    )
    recipe = load_text(text_of(import_job(job), job), source="imported.yaml").recipe
    return lower_for(recipe, target), recipe


def _differences(one: Artifact, other: Artifact, recipe: Recipe, target: Target) -> dict[str, Any]:
    before, after = read_lowered(one, recipe, target), read_lowered(other, recipe, target)
    found = differing(before.deepspeed or {}, after.deepspeed or {}, default_of)
    found |= differing(before.accelerate or {}, after.accelerate or {}, accelerate_default)
    return {path: pair for path, pair in found.items() if path not in _ONCE_PER_JOB}


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    recipe=valid_recipes(),
    backend=st.sampled_from(("accelerate", "deepspeed")),
    device=st.sampled_from(("cuda", "cpu")),
)
def test_a_drawn_recipe_survives_its_lowering(recipe: Recipe, backend: Backend, device: Device) -> None:
    training = replace(recipe.training, num_gpus=min(recipe.training.num_gpus, 64), device=device)
    if broken_device_rules(replace(recipe, training=training), device):
        return
    try:
        plan = settle(replace(recipe, training=training), recipe_name="drawn", backend=backend, device=device)
        artifact = lower(plan, placement=Placement(out_folder=PurePath("out")), allow_lossy=True)
    except UsageError:
        # Sizes that no longer multiply out, or a mode that this device has not.
        return
    target = Target(backend=backend, device=device, num_nodes=1)
    again, imported = _again(artifact, target, training.num_gpus)
    assert not _differences(artifact, again, imported, target)


_SHARDED = {"training.precision": "bf16-mixed", "training.gradient_clip": 0.7}
_DRAWN: dict[str, dict[str, Any]] = {
    "zero1 with every number": {
        **_SHARDED,
        "parallelism.data.strategy": "zero1",
        "training.optimizer": "Adam",
        "training.betas": [0.8, 0.99],
        "training.gradient_accumulation": 4,
    },
    "zero2 on the CPU's memory": {
        **_SHARDED,
        "parallelism.data.strategy": "zero2",
        "parallelism.data.offload.optimizer": "cpu",
        "communication.overlap.bucket_cap_mb": 13.5,
    },
    "zero3 with ZeRO++": {
        **_SHARDED,
        "parallelism.data.strategy": "zero3",
        "parallelism.data.offload.parameters": "cpu",
        "parallelism.data.zero.secondary_partition_size": 2,
        "parallelism.data.zero.quantized_weights": True,
    },
    "linear schedule": {
        "parallelism.data.strategy": "zero2",
        "training.scheduler.type": "linear",
        "training.scheduler.warmup_steps": 10,
        "training.learning_rate": 2e-4,
    },
    "cosine schedule without warm-up": {
        "parallelism.data.strategy": "zero1",
        "training.scheduler.type": "cosine",
        "training.scheduler.min_ratio": 0.1,
    },
    "plain data parallelism with SGD": {"training.optimizer": "SGD", "training.momentum": 0.9},
    "pure bf16": {"parallelism.data.strategy": "zero2", "training.precision": "bf16-true"},
    "fp16": {"parallelism.data.strategy": "zero1", "training.precision": "fp16-mixed"},
    "number formats": {
        **_SHARDED,
        "parallelism.data.strategy": "zero2",
        "training.gradient_accumulation_dtype": "fp32",
        "communication.dtype": "fp32",
    },
    "compressed": {"communication.compression.method": "fp16"},
}


@pytest.mark.parametrize("name", _DRAWN)
def test_the_real_loader_reads_the_same_again(name: str, oracle: Oracle) -> None:
    artifact = lowered("deepspeed", _DRAWN[name])
    target = Target(backend="deepspeed", device="cuda", num_nodes=1)
    again, recipe = _again(artifact, target, 2)
    answers = [oracle.ask("deepspeed", text=each.files[DEEPSPEED_FILE], world=2) for each in (artifact, again)]
    assert all(answer["ok"] for answer in answers), answers
    assert acting(answers[0]["value"], 2) == acting(answers[1]["value"], 2)
    if name.startswith(("linear", "cosine")):
        assert not recipe.backends.deepspeed.get("scheduler"), "a recipe has a word for this schedule"


_TRAINED: dict[str, dict[str, Any]] = {
    "plain, cosine, pure defaults": {"training.scheduler.type": "cosine", "training.scheduler.warmup_steps": 5},
    "plain, everything said": {
        "training.optimizer": "SGD",
        "training.momentum": 0.9,
        "training.weight_decay": 0.1,
        "training.gradient_clip": 0.5,
        "training.precision": "bf16-mixed",
        "training.loss_weighting": "token",
        "training.gradient_checkpointing": True,
        "training.seed": 7,
        "training.compile": True,
        "training.compile_mode": "max-autotune",
        "training.compile_regional": False,
        "communication.overlap.bucket_cap_mb": 50,
        "communication.overlap.find_unused_parameters": True,
    },
    "zero2, linear to a tenth": {
        **_SHARDED,
        "parallelism.data.strategy": "zero2",
        "training.scheduler.type": "linear",
        "training.scheduler.min_ratio": 0.1,
        "training.scheduler.warmup_steps": 10,
        "training.gradient_accumulation": 3,
    },
}


@pytest.mark.parametrize("name", _TRAINED)
def test_the_trainers_arguments_survive(name: str) -> None:
    artifact = lowered("trainer", _TRAINED[name])
    job = Job(
        deepspeed=_document(artifact, DEEPSPEED_FILE, "deepspeed"),
        trainer=_document(artifact, TRAINER_FILE, "trainer"),
        facts=LaunchFacts(num_processes=2),
    )
    imported = import_job(job)
    assert imported.lower_options == ("--backend", "trainer", "--device", "cuda")
    recipe = load_text(text_of(imported, job), source="imported.yaml").recipe
    again = lower_for(recipe, Target(backend="trainer", device="cuda", num_nodes=1))
    for file in (TRAINER_FILE, DEEPSPEED_FILE):
        assert again.files.get(file) == artifact.files.get(file)


_FSDP = {STRATEGY: "fsdp", "training.precision": "bf16-mixed", "model": None, "training.num_gpus": 4}
_FSDP_SETTINGS: dict[str, dict[str, Any]] = {
    "version 2": {},
    "version 2, kept after the forward pass": {"parallelism.data.fsdp.reshard_after_forward": False},
    "version 2, in two copies": {"parallelism.data.shard_group_size": 2},
    "version 2, blocks by name, offloaded": {
        "parallelism.data.fsdp.block_classes": ["FirstBlock", "SecondBlock"],
        "parallelism.data.fsdp.state_dict": "full",
        "parallelism.data.offload.parameters": "cpu",
        "parallelism.data.offload.optimizer": "cpu",
    },
    "version 1": {"parallelism.data.fsdp.version": 1},
    "version 1, units by size, loaded by rank 0": {
        "parallelism.data.fsdp.version": 1,
        "parallelism.data.fsdp.reshard_after_forward": False,
        "parallelism.data.fsdp.wrap": "size",
        "parallelism.data.fsdp.wrap_min_parameters": 1_000_000,
        "parallelism.data.fsdp.cpu_ram_efficient_loading": True,
        "parallelism.data.fsdp.sync_module_states": True,
    },
}


@pytest.mark.parametrize("name", _FSDP_SETTINGS)
def test_fsdp_survives_as_accelerate_spells_it(name: str) -> None:
    artifact = lowered("accelerate", {**_FSDP, **_FSDP_SETTINGS[name]})
    target = Target(backend="accelerate", device="cuda", num_nodes=1)
    again, recipe = _again(artifact, target, 4)
    assert again.files[ACCELERATE_FILE] == artifact.files[ACCELERATE_FILE]
    assert not recipe.backends.accelerate, "a recipe has a word for each of these settings"


def test_hybrid_shards_of_version_1_are_the_ranks_of_a_machine() -> None:
    values = {**_FSDP, "parallelism.data.fsdp.version": 1, "parallelism.data.shard_group_size": 2}
    artifact = lowered("accelerate", values, num_nodes=2)
    again, recipe = _again(artifact, Target(backend="accelerate", device="cuda", num_nodes=2), 4)
    assert "HYBRID_SHARD" in again.files[ACCELERATE_FILE]
    assert recipe.parallelism.data.shard_group_size == 2
