"""What a key that nobody reads was meant to be, and remarks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lint.linting import lint
from tests.lint.pairs_accelerate import ac, fsdp, plugin
from tests.lint.pairs_deepspeed import ds


@pytest.mark.parametrize(
    ("changes", "path", "fix"),
    [
        ({"communication_data_typ": "fp16"}, "communication_data_typ", "write communication_data_type"),
        (
            {"zero_optimization": {"zero_allow_untested_optimizer": True}},
            "",
            "at zero_allow_untested_optimizer",
        ),
        (
            {"offload_optimizer": {"device": "cpu"}},
            "offload_optimizer",
            "belongs at zero_optimization.offload_optimizer",
        ),
        ({"tensor_parallel": {"tp_size": 2}}, "tensor_parallel.tp_size", "tensor_parallel.tp_size"),
        # A name that many sections have says nothing about where it belongs.
        ({"tensor_parallel": {"enabled": True}}, "tensor_parallel.enabled", "the section that it is for"),
        (
            {"zero_optimization": {"stage": 2, "verbose": True}},
            "zero_optimization.verbose",
            "the section that it is for",
        ),
        ({"optimizer": {"type": "AdamW", "params": {"weight_decay": 0.1}, "eps": 1e-8}}, "optimizer.eps", "params.eps"),
        ({"eps": 1e-8}, "eps", "at optimizer.params.eps"),
        # A key that is written already was not meant a second time.
        ({"eval_micro_batch_size_per_gpu": 1}, "eval_micro_batch_size_per_gpu", "remove it"),
        # What could not hold the value was not meant.
        ({"sequence_parallel": {"sp_size": 4}}, "sequence_parallel", "remove it"),
        ({"pipeline": {"pipe_partition_method": "custom"}}, "pipeline.pipe_partition_method", "remove it"),
        # Nor was a key that another section has far below.
        ({"pipeline": {"random_ltd_layer_num": 4}}, "pipeline.random_ltd_layer_num", "data_routing"),
        ({"pipeline": {"micro_batch_size": 4}}, "pipeline.micro_batch_size", "train_micro_batch_size_per_gpu"),
    ],
)
def test_the_fix_names_the_key_that_was_meant(changes: dict[str, Any], path: str, fix: str) -> None:
    found = [each for each in lint(**ds(**changes)) if each.code in ("DS101", "DS102") and each.path.endswith(path)]
    assert [fix in each.fix for each in found] == [True], found


def test_a_key_of_fsdp_is_sent_to_no_section_of_deepspeed() -> None:
    found = [each for each in lint(**fsdp("offload_optimizer: false")) if each.code == "AC102"]
    assert [each.fix.startswith("remove it") for each in found] == [True]


def test_a_section_of_a_deepspeed_json_sets_no_argument_of_the_launcher() -> None:
    found = [each for each in lint(**plugin("fp16: {enabled: true}")) if each.code == "AC102"]
    assert [("does nothing" in each.effect, "DeepSpeed JSON" in each.fix) for each in found] == [(True, True)]


@pytest.mark.parametrize(("top", "severity"), [(None, "warning"), ("29501", "error")])
def test_a_section_sets_an_argument_for_good_or_over_another(top: str | None, severity: str) -> None:
    keys = {} if top is None else {"main_process_port": top}
    section = "deepspeed_config:\n  zero_stage: 2\n  main_process_port: 29600\n"
    found = [each for each in lint(**ac("DEEPSPEED", section, **keys)) if each.code == "AC102"]
    assert [(each.severity, "sets its own argument main_process_port" in each.effect) for each in found] == [
        (severity, True)
    ]


def test_a_remark_is_no_misspelt_key() -> None:
    for name in ("comment", "_comment", "note"):
        found = [each for each in lint(**ds(**{name: "two words"})) if each.path == name]
        assert [each.severity for each in found] == ["warning"], name


def test_an_old_switch_that_is_off_is_only_removed() -> None:
    found = [each for each in lint(**ds({"stage": 2, "cpu_offload": False})) if each.code == "DS104"]
    assert [each.fix for each in found] == ["remove it: off is the default"]


@pytest.mark.parametrize(("address", "found"), [("0", True), ("127.0.0.1", True), ("10.0.0.1", False)])
def test_an_address_that_is_this_machine_is_none(address: str, found: bool) -> None:
    job = ac(processes="8", num_machines="2", main_process_ip=address)
    assert ("AC205" in [each.code for each in lint(**job)]) == found


def test_a_section_of_another_type_says_what_runs() -> None:
    section = "deepspeed_config:\n  zero_stage: 2\n"
    for kind, effect in (("MULTI_GPU", "plain DDP"), ("FSDP", "it does nothing"), ("MEGATRON_LM", "it does nothing")):
        found = [each for each in lint(**ac(kind, section)) if each.code == "AC207"]
        assert [effect in each.effect for each in found] == [True], kind
