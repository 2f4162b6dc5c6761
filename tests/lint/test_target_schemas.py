"""The target schemas know exactly the keys, defaults and choices that the installed libraries know."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from gradwire.resources import schema_text
from gradwire.targets.schema import load_schema

KINDS = ("deepspeed", "accelerate")

# Set by the library while it runs, never written by a person.
_DATA_PIPELINE_STATE = {
    "batch", "cluster", "consumed_samples", "curriculum_step", "current_difficulties", "current_difficulty",
        "data_cluster_paths",
    "data_cluster_current_position", "np_rng_state", "sample_idx", "attention_mask",
        "consumed_layer_tokens",
    "current_value", "current_steps",
}  # fmt: skip
# Values of other keys, not keys.
_DATA_PIPELINE_VALUES = {
    "value",
    "percentile",
    "single_cluster",
    "fixed_discrete",
    "fixed_root",
    "fixed_linear",
    "custom",
    "linear",
    "dataloader",
}
_DATA_PIPELINE_SECTIONS = (
    "DataEfficiency", "DataSampling", "CurriculumLearning", "CurriculumMetric", "CurriculumSchedule", "DynamicBatching",
    "DataRouting", "RandomLtd", "RandomLtdSchedule", "RandomLtdScheduleConfig", "LayerTokenLr",
)  # fmt: skip


def _section(kind: str, name: str) -> dict[str, Any]:
    schema = load_schema(kind)
    section: dict[str, Any] = schema if name == "top" else schema["$defs"][name]
    return section


def _properties(kind: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    schema = load_schema(kind)
    for section, definition in (("top", schema), *schema["$defs"].items()):
        for key, spec in definition.get("properties", {}).items():
            yield section, key, spec


@pytest.mark.parametrize("kind", KINDS)
def test_is_a_valid_schema_that_describes_every_key(kind: str) -> None:
    schema = json.loads(schema_text(kind))
    jsonschema.Draft202012Validator.check_schema(schema)
    silent = [f"{section}.{key}" for section, key, spec in _properties(kind) if len(spec.get("description", "")) < 4]
    assert silent == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_default_and_example_is_valid(kind: str) -> None:
    schema = load_schema(kind)
    for section, key, spec in _properties(kind):
        validator = jsonschema.Draft202012Validator({**spec, "$defs": schema["$defs"]})
        for value in (*([spec["default"]] if "default" in spec else []), *spec.get("examples", [])):
            assert validator.is_valid(value), f"{section}.{key}: {value!r}"


def test_versions_are_the_installed_ones(names: dict[str, Any]) -> None:
    for kind in KINDS:
        assert names["versions"][kind] in load_schema(kind)["x-library"]["versions"]


def test_deepspeed_sections_hold_the_keys_that_the_library_reads(names: dict[str, Any]) -> None:
    for name, known in names["deepspeed"].items():
        section = _section("deepspeed", name)
        written = set(section["properties"]) | set(section.get("x-removed", {}))
        if name == "ZeroOptimization":
            written -= set(section["x-removed"])
        if name == "DynamicBatching":
            written -= {"max_tokens", "metrics_path"}  # asked for only when it is enabled; see the next test
        assert written == set(known), name


def test_data_efficiency_sections_hold_the_names_that_the_library_has(names: dict[str, Any]) -> None:
    constants = {
        value
        for name, value in names["data_pipeline"].items()
        if not name.endswith("_DEFAULT") and name.startswith(("DATA_", "CURRICULUM_", "DYNAMIC_", "RANDOM_LTD"))
    }
    written = {key for section in _DATA_PIPELINE_SECTIONS for key in _section("deepspeed", section)["properties"]}
    assert constants - _DATA_PIPELINE_STATE - _DATA_PIPELINE_VALUES - {"data_efficiency"} == written


def test_no_section_of_the_deepspeed_schema_is_unchecked(names: dict[str, Any]) -> None:
    checked = {*names["deepspeed"].keys() - {"top"}, *_DATA_PIPELINE_SECTIONS, "OptimizerParams", "SchedulerParams"}
    assert set(load_schema("deepspeed")["$defs"]) == checked


def test_removed_keys_are_those_that_the_library_refuses(names: dict[str, Any]) -> None:
    for name, removed in names["removed"].items():
        assert sorted(_section("deepspeed", name)["x-removed"]) == removed


def test_deepspeed_defaults_are_those_of_the_models(names: dict[str, Any]) -> None:
    for name, defaults in names["defaults"].items():
        properties = _section("deepspeed", name)["properties"]
        for key, default in defaults.items():
            if key in ("mpu", "tp_group") or (isinstance(default, str) and default.startswith("torch.")):
                continue
            assert properties[key].get("default", default) == default, f"{name}.{key}"


def test_both_spellings_of_a_field_are_known_and_say_so(names: dict[str, Any]) -> None:
    for name, aliases in names["aliases"].items():
        properties = _section("deepspeed", name)["properties"]
        for alias, field in aliases.items():
            assert properties[alias]["x-field"] == field
            assert properties[field]["x-same-as"] == alias


def test_optimizers_and_their_parameters(names: dict[str, Any]) -> None:
    types = _section("deepspeed", "Optimizer")["x-types"]
    known = names["optimizers"]
    assert types["own"] == known["own"]
    assert types["torch"] == known["torch"]
    signatures = known["parameters"]
    for name, variants in _section("deepspeed", "OptimizerParams")["x-parameters"].items():
        for variant, accepted in variants.items():
            engine, constructor = _optimizer_source(name, variant)
            passed_by_engine = {"adam_w_mode", "adamw_mode", "max_grad_norm"} | engine
            assert set(accepted) - engine == set(signatures[constructor]) - passed_by_engine, f"{name} {variant}"


def _optimizer_source(name: str, variant: str) -> tuple[set[str], str]:
    """What the engine takes out of the parameters itself, and the constructor that gets the rest."""
    if name in ("adam", "adamw"):
        torch_name = "Adam" if name == "adam" else "AdamW"
        return {"torch_adam", "adam_w_mode", "fp32_optimizer_states"}, {
            "fused": "FusedAdam",
            "cpu": "CPUAdam",
            "torch": torch_name,
        }[variant]
    own = {
        ("adagrad", "fused"): "Adagrad", ("adagrad", "cpu"): "CPUAdagrad", ("lamb", "fused"): "FusedLamb",
        ("lion", "fused"): "FusedLion", ("lion", "cpu"): "CPULion",
    }  # fmt: skip
    return set(), own.get((name, variant), name)


def test_schedulers_and_their_parameters(names: dict[str, Any]) -> None:
    types = _section("deepspeed", "Scheduler")["x-types"]
    table = _section("deepspeed", "SchedulerParams")["x-parameters"]
    known = names["schedulers"]
    assert types["own"] == known["own"]
    assert types["torch"] == known["torch"]
    assert {*table, *types["needs-code"]} == {*types["own"], *types["torch"]}
    for name, each in table.items():
        assert each == {"accepted": known["parameters"][name], "required": known["required"][name]}, name
    used = {key for each in table.values() for key in each["accepted"]}
    assert set(_section("deepspeed", "SchedulerParams")["properties"]) == used


def test_accelerate_top_level_holds_the_fields_of_its_classes(names: dict[str, Any]) -> None:
    for name in ("LocalMachine", "SageMaker"):
        written = {key for key, spec in _section("accelerate", name)["properties"].items() if not spec.get("x-legacy")}
        assert written == set(names["accelerate"][name]), name


def test_accelerate_sections_hold_the_arguments_of_the_launcher(names: dict[str, Any]) -> None:
    groups = names["accelerate"]["groups"]
    dynamo = {key: value for key, value in groups["Resource Selection Arguments"].items() if key.startswith("dynamo_")}
    sections = {
        "DeepSpeedPlugin": groups["DeepSpeed Arguments"],
        # Read with getattr from what the file sets; there is no such option.
        "Fsdp": {**groups["FSDP Arguments"], "fsdp_ignored_modules": None},
        "Dynamo": dynamo,
        "Parallelism": groups["ParallelismConfig Arguments"],
        "Fp8": groups["FP8 Arguments"],
        "MegatronLm": groups["Megatron-LM Arguments"],
        "Mpirun": groups["MPI Arguments"],
    }
    for name, arguments in sections.items():
        assert set(_section("accelerate", name)["properties"]) == set(arguments), name


def test_accelerate_choices_are_those_of_the_library(names: dict[str, Any]) -> None:
    known, local = names["accelerate"], _section("accelerate", "LocalMachine")["properties"]
    fsdp = _section("accelerate", "Fsdp")["properties"]
    constants = known["constants"]
    assert sorted(local["distributed_type"]["enum"]) == sorted(known["distributed_type"])
    assert sorted(_section("accelerate", "SageMaker")["properties"]["distributed_type"]["enum"]) == sorted(
        known["sagemaker_type"]
    )
    assert sorted(local["dynamo_backend"]["enum"]) == sorted(known["dynamo_backend"])
    assert sorted(filter(None, local["mixed_precision"]["enum"])) == sorted(known["mixed_precision"])
    for key, name in (
        ("fsdp_sharding_strategy", "FSDP_SHARDING_STRATEGY"),
        ("fsdp_auto_wrap_policy", "FSDP_AUTO_WRAP_POLICY"),
        ("fsdp_backward_prefetch", "FSDP_BACKWARD_PREFETCH"),
        ("fsdp_state_dict_type", "FSDP_STATE_DICT_TYPE"),
    ):
        words = [value for value in fsdp[key]["enum"] if isinstance(value, str) and not value.isdigit()]
        assert words == constants[name], key
    assert (
        _section("accelerate", "DeepSpeedPlugin")["properties"]["deepspeed_multinode_launcher"]["enum"]
        == constants["DEEPSPEED_MULTINODE_LAUNCHERS"]
    )
    # The last is torch's own: the launcher's option does not offer it, but passes it on from a file.
    modes = [*constants["TORCH_DYNAMO_MODES"], "max-autotune-no-cudagraphs"]
    assert _section("accelerate", "Dynamo")["properties"]["dynamo_mode"]["enum"] == modes


@pytest.mark.parametrize("kind", KINDS)
def test_works_in_an_editor_that_knows_json_schema_alone(kind: str) -> None:
    """Completion and hover text need closed sections and descriptions; an unknown key must show at every level."""
    validator = jsonschema.Draft202012Validator(load_schema(kind))
    good: dict[str, Any] = {
        "deepspeed": {
            "train_batch_size": "auto",
            "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}},
            "bf16": {"enabled": True},
        },
        "accelerate": {"distributed_type": "FSDP", "num_processes": 8, "fsdp_config": {"fsdp_version": 2}},
    }[kind]
    assert list(validator.iter_errors(good)) == []
    section = "zero_optimization" if kind == "deepspeed" else "fsdp_config"
    for bad in ({**good, "bogus": 1}, {**good, section: {**good[section], "bogus": 1}}):
        assert list(validator.iter_errors(bad)), bad
