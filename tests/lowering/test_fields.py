"""Every field of the recipe's schema is accounted for, once, on every backend and whatever the recipe asks for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gradwire.errors import CannotLower
from gradwire.lowering.fields import account, exact, recipe_paths
from gradwire.plan import BACKENDS, Backend
from gradwire.resources import schema_text
from tests.lowering.drawing import METHOD, STRATEGY, lowered

COMPRESSION = json.loads(schema_text("recipe"))["$defs"]["Compression"]["properties"]

OFFLOAD = "parallelism.data.offload"
PIPELINE = {"parallelism.pipeline": {"chunks": 4, "stages": 2, "schedule": "1f1b"}, "training.batch_size_per_gpu": 4}

ASKS: list[dict[str, Any]] = [
    {},
    {"model": None},
    {METHOD: "powersgd"},
    {METHOD: "fp16"},
    {METHOD: "int8"},
    {METHOD: "powersgd-torch"},
    {"training.optimizer": "SGD", "training.momentum": 0.9},
    {"training.precision": "bf16-true", "training.gradient_checkpointing": True},
    {"training.precision": "bf16-mixed", STRATEGY: "zero3"},
    {"communication.overlap.bucket_cap_mb": 50, STRATEGY: "zero2"},
    {STRATEGY: "fsdp", "training.precision": "fp16-mixed"},
    {"training.global_batch_size": 2},
    {"training.loss_weighting": "token", "data.min_labels": 4},
    {"training.precision": "bf16-mixed", STRATEGY: "zero2", "training.gradient_accumulation_dtype": "fp32"},
    {"training.precision": "bf16-true", "communication.dtype": "fp32", STRATEGY: "fsdp"},
    {"training.precision": "bf16-true", "training.gradient_accumulation_dtype": "fp32"},
    {STRATEGY: "fsdp", "training.num_gpus": 4, "parallelism.data.shard_group_size": 2},
    {STRATEGY: "fsdp", f"{OFFLOAD}.optimizer": "cpu", f"{OFFLOAD}.parameters": "cpu", f"{OFFLOAD}.pin_memory": False},
    {STRATEGY: "fsdp", "parallelism.data.fsdp.version": 1, "parallelism.data.fsdp.sync_module_states": True},
    {STRATEGY: "zero3", f"{OFFLOAD}.parameters": "nvme", f"{OFFLOAD}.nvme_path": "/local_nvme"},
    {STRATEGY: "zero3", "parallelism.data.zero.quantized_weights": True},
    {"training.precision": "bf16-mixed", "training.fp8": "transformer-engine"},
    PIPELINE,
]


def leaves_of(schema: dict[str, Any], definitions: dict[str, Any], prefix: str) -> list[str]:
    """A walk of its own over the schema, so that the package's walk cannot forget a field unnoticed."""
    found = []
    for name, below in schema["properties"].items():
        reference = below.get("$ref") or next((o["$ref"] for o in below.get("anyOf", []) if "$ref" in o), None)
        if reference is None:
            found.append(prefix + name)
        else:
            found += leaves_of(definitions[reference.rpartition("/")[2]], definitions, f"{prefix}{name}.")
    return found


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("values", ASKS, ids=lambda values: ",".join(values) or "defaults")
def test_every_field_of_the_schema_is_accounted_for_once(backend: Backend, values: dict[str, Any]) -> None:
    schema = json.loads(schema_text("recipe"))
    artifact = lowered(backend, values, allow_lossy=True)
    assert [field.path for field in artifact.report.fields] == leaves_of(schema, schema["$defs"], "")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("values", ASKS, ids=lambda values: ",".join(values) or "defaults")
def test_what_is_carried_names_its_carrier_and_what_is_not_says_why(backend: Backend, values: dict[str, Any]) -> None:
    for field in lowered(backend, values, allow_lossy=True).report.fields:
        if field.outcome in ("exact", "emulated"):
            assert field.carrier, field.path
        if field.outcome in ("emulated", "refused"):
            assert field.note, field.path


@pytest.mark.parametrize("method", COMPRESSION["method"]["enum"])
def test_an_option_is_carried_where_the_method_reads_it_as_the_schema_says(method: str) -> None:
    fields = {field.path: field for field in lowered("native", {METHOD: method}).report.fields}
    for option, schema in COMPRESSION.items():
        if option != "method":
            readers = schema["description"].partition(":")[0].split(", ")
            outcome = fields[f"communication.compression.{option}"].outcome
            assert outcome == ("exact" if method in readers else "unused"), option


def test_a_forgotten_field_is_a_bug_and_not_left_out() -> None:
    from gradwire.documents.recipe_schema import Recipe

    outcomes = {path: exact("gradwire.train") for path in recipe_paths()}
    del outcomes["training.seed"]
    with pytest.raises(KeyError, match=r"training\.seed"):
        account(Recipe(), outcomes)
    with pytest.raises(KeyError, match=r"training\.sed"):
        account(Recipe(), {**outcomes, "training.seed": exact("x"), "training.sed": exact("x")})


def test_a_refusal_lists_every_field_with_its_limit_and_the_nearest_thing() -> None:
    with pytest.raises(CannotLower) as caught:
        lowered("deepspeed", {METHOD: "powersgd", "communication.overlap.static_graph": True, **PIPELINE})
    message = str(caught.value)
    for path in (METHOD, "communication.overlap.static_graph", "parallelism.pipeline.chunks"):
        [line] = [line for line in message.splitlines() if line.strip().startswith(path)]
        assert "; nearest: " in line
    assert "--allow-lossy" in message
    assert caught.value.exit_code == 3


def test_a_lossy_lowering_writes_a_plan_that_holds_and_reports_what_was_asked() -> None:
    artifact = lowered("deepspeed", {STRATEGY: "fsdp"}, allow_lossy=True)
    written = json.loads(artifact.files["plan.json"])
    assert written["recipe"]["parallelism"]["data"]["strategy"] == "zero3"
    assert json.loads(artifact.files["deepspeed.json"])["zero_optimization"]["stage"] == 3
    assert artifact.report.recipe_sha256 == written["recipe_sha256"]
    [field] = [field for field in artifact.report.fields if field.path == STRATEGY]
    assert (field.value, field.outcome) == ("fsdp", "refused")
    assert "zero3" in str(field.note)


def test_a_users_own_script_is_named_where_it_must_do_the_work() -> None:
    fields = {f.path: f for f in lowered("native", program=("train.py", "--epochs", "1")).report.fields}
    assert fields["training.compile"].carrier == "train.py"
    assert fields["training.compile"].outcome == "emulated"
    fields = {f.path: f for f in lowered("accelerate", program=("-m", "my.train")).report.fields}
    assert fields["training.gradient_accumulation"].carrier == "gradwire.accelerate.from_recipe"
    assert "my.train" in str(fields["training.gradient_accumulation"].note)
