"""What the findings say will happen, against what the real libraries do."""

from __future__ import annotations

from typing import Any

import pytest

from gradwire.launch.probe import free_port
from gradwire.targets.tree import Document
from tests.lint.linting import lint
from tests.lint.oracle_client import Oracle
from tests.lint.pairs_accelerate import FILE_ONLY, SAGEMAKER, ZERO2, ac, fsdp, plugin
from tests.lint.pairs_accelerate import PAIRS as ACCELERATE_PAIRS
from tests.lint.pairs_deepspeed import ABSENT, PAIRS, ds, warmup

# At world size 1, where these pairs are about a larger one.
_WORLDS = {"DS602": 14, "DS603": 8, "DS209": 8, "DS604": 32}
# DeepSpeed takes both files; the engine, another version, or what the file means is where they differ. Each is below,
# but for DS607, where it is Lightning that refuses (test_public_reports.py).
_NOT_LOADED_APART = {"DS303", "DS207", "DS607"}


def _loads(oracle: Oracle, job: dict[str, Any], world: int) -> bool:
    return bool(oracle.ask("deepspeed", config=job["deepspeed"], world=world)["ok"])


def _foreseen(job: dict[str, Any]) -> bool:
    return any("refuses to start" in finding.effect and finding.severity == "error" for finding in lint(**job))


@pytest.mark.parametrize("code", sorted(set(PAIRS) - _NOT_LOADED_APART))
def test_deepspeed_stops_exactly_where_a_finding_says_so(oracle: Oracle, code: str) -> None:
    for job in PAIRS[code]:
        assert _loads(oracle, job, _WORLDS.get(code, 1)) != _foreseen(job)


def _effective(oracle: Oracle, job: dict[str, Any], **details: Any) -> dict[str, Any]:
    answer = oracle.ask("deepspeed", config=job["deepspeed"], **details)
    assert answer["ok"], answer
    value: dict[str, Any] = answer["value"]
    return value


def test_hidden_values_of_deepspeed_are_as_said(oracle: Oracle) -> None:
    assert _effective(oracle, ds(gradient_clipping=ABSENT))["gradient_clipping"] == 1.0
    assert [_effective(oracle, ds({"stage": stage}))["zero"]["overlap_comm"] for stage in (1, 2, 3)] == [
        False,
        False,
        True,
    ]
    assert _effective(oracle, ds({"stage": "auto"}))["stage"] == 0
    assert _effective(oracle, ds({"stage": "2"}))["stage"] == 2
    assert _effective(oracle, ds(True))["stage"] == 1
    assert (
        _effective(oracle, ds({"stage": 3, "stage3_max_live_parameters": "auto"}))["zero"]["max_live_parameters"]
        == 1_000_000_000
    )
    assert not _effective(oracle, ds(bfloat16={"enabled": True}, bf16={"enabled": False}))["bf16"]["enabled"]
    assert _effective(oracle, ds(bfloat16={"enabled": True}))["bf16"]["enabled"]


@pytest.mark.parametrize(
    ("world", "sizes"),
    [
        (7, {"train_batch_size": 256, "train_micro_batch_size_per_gpu": 2}),
        (4, {"train_batch_size": 32}),
        (8, {"train_batch_size": 100}),
    ],
)
def test_the_sizes_that_a_batch_finding_offers_are_valid(oracle: Oracle, world: int, sizes: dict[str, int]) -> None:
    from gradwire.targets.job import LaunchFacts

    job = {"deepspeed": sizes, "facts": LaunchFacts(num_processes=world)}
    found = [finding for finding in lint(**job) if finding.code == "DS603"]
    assert _loads(oracle, job, world) != bool(found)
    for finding in found:
        offered = [int(word) for word in finding.fix.split(", leave")[0].removeprefix("write ").split(" or ")]
        assert offered
        for size in offered:
            assert _loads(oracle, {"deepspeed": sizes | {"train_batch_size": size}}, world)


def test_a_batch_that_no_filling_makes_true_is_refused_by_the_trainer_too(oracle: Oracle) -> None:
    job = ds(ZERO2, train_batch_size=4, train_micro_batch_size_per_gpu="auto", gradient_accumulation_steps=16)
    assert [finding.code for finding in lint(**job) if finding.severity == "error"] == ["DS602"]
    for micro in (1, 4):
        given = {"per_device_train_batch_size": micro, "gradient_accumulation_steps": 16}
        answer = oracle.ask("fill", config=job["deepspeed"], arguments=given)
        assert "train_batch_size=4" in answer["message"]


def test_a_warm_up_longer_than_the_schedule_ends_in_a_drop(oracle: Oracle) -> None:
    for kind, peak in (("WarmupDecayLR", {"warmup_max_lr": 0.5}), ("WarmupCosineLR", {})):
        rates = _rates(oracle, kind, 12, total_num_steps=5, warmup_num_steps=10, **peak)
        assert rates[3] < rates[4] < 0.49 < rates[9] and rates[10] == rates[11] < 1e-4


def _rates(oracle: Oracle, kind: str, steps: int, **params: Any) -> list[float]:
    answer = oracle.ask("construct", what="scheduler", name=kind, params=params, lr=0.5, steps=steps)
    assert answer["ok"], answer
    rates: list[float] = answer["value"]
    return rates


def test_a_warm_up_without_a_type_is_logarithmic(oracle: Oracle) -> None:
    rates = _rates(oracle, "WarmupLR", 100, warmup_max_lr=1.0, warmup_num_steps=100)
    assert rates[9] == pytest.approx(0.5, abs=0.03)  # half of the peak after the square root of the warm-up
    linear = _rates(oracle, "WarmupLR", 100, warmup_max_lr=1.0, warmup_num_steps=100, warmup_type="linear")
    assert linear[49] == pytest.approx(0.5, abs=0.02)


def test_the_peak_that_is_not_written_is_0_001_for_the_decaying_schedule_alone(oracle: Oracle) -> None:
    assert max(_rates(oracle, "WarmupDecayLR", 20, total_num_steps=20, warmup_num_steps=2)) == pytest.approx(1e-3)
    assert max(_rates(oracle, "WarmupLR", 20, warmup_num_steps=2)) == pytest.approx(0.5)


def test_the_scheduler_wins_over_the_optimizer(oracle: Oracle) -> None:
    assert max(_rates(oracle, "WarmupLR", 20, warmup_max_lr=0.01, warmup_num_steps=2)) == pytest.approx(0.01)


def test_an_unknown_warm_up_is_logarithmic(oracle: Oracle) -> None:
    known = _rates(oracle, "WarmupLR", 20, warmup_max_lr=1.0, warmup_num_steps=10, warmup_type="log")
    for other in ("cosine", "Linear"):
        assert _rates(oracle, "WarmupLR", 20, warmup_max_lr=1.0, warmup_num_steps=10, warmup_type=other) == known
        found = [each for each in lint(**ds(scheduler=warmup(warmup_type=other))) if "warmup_type" in each.path]
        assert [(each.code, each.severity, each.edits) for each in found] == [("DS106", "warning", ())]


TORCH_ADAM = {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}


def _adam(**params: Any) -> dict[str, Any]:
    return {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True} | params}


LATER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "DS401": (ds(optimizer={"type": "ZeroOneAdam", "params": {"lr": 1e-3}}), ds(optimizer=TORCH_ADAM)),
    "DS403": (ds(optimizer=_adam(max_grad_norm=1.0)), ds(optimizer=TORCH_ADAM)),
    "DS404": (ds(optimizer=_adam(beta=0.9)), ds(optimizer=_adam(betas=[0.9, 0.95]))),
    "DS406": (
        ds({"stage": 1}, optimizer={"type": "SGD", "params": {"lr": 0.1}}),
        ds({"stage": 1}, optimizer={"type": "SGD", "params": {"lr": 0.1}}, zero_allow_untested_optimizer=True),
    ),
    "DS501": (
        ds(optimizer=TORCH_ADAM, scheduler={"type": "WarmupLr", "params": {}}),
        ds(optimizer=TORCH_ADAM, scheduler=warmup()),
    ),
    "DS502": (ds(optimizer=TORCH_ADAM, scheduler={"type": "WarmupLR"}), ds(optimizer=TORCH_ADAM, scheduler=warmup())),
    "DS503": (
        ds(optimizer=TORCH_ADAM, scheduler=warmup(warmup_num_steps=0)),
        ds(optimizer=TORCH_ADAM, scheduler=warmup(warmup_num_steps=1)),
    ),
    "DS204": (
        ds({"stage": 3, "offload_param": {"device": "nvme"}}, optimizer=TORCH_ADAM),
        ds({"stage": 3}, optimizer=TORCH_ADAM),
    ),
    "DS211": (
        ds({"stage": 2}, optimizer=TORCH_ADAM, prescale_gradients=True),
        ds({"stage": 1}, optimizer=TORCH_ADAM, prescale_gradients=True),
    ),
    "DS213": (
        ds({"stage": 2, "compute_grad_norm": False}, optimizer=TORCH_ADAM),
        ds({"stage": 2, "compute_grad_norm": False}, optimizer=TORCH_ADAM, gradient_clipping=0),
    ),
    "DS414": (ds(optimizer={"type": "LBFGS", "params": {"lr": 0.1}}), ds(optimizer=TORCH_ADAM)),
    "DS415": (ds(optimizer=TORCH_ADAM, steps_per_print=0), ds(optimizer=TORCH_ADAM, log_level="INFO")),
    "DS412": (ds(optimizer=_adam(betas=[0.9, 1.0])), ds(optimizer=TORCH_ADAM)),
    "DS508": (
        ds({"stage": 1}, optimizer=TORCH_ADAM, scheduler={"type": "StepLR", "params": {"step_size": 3}}),
        ds(optimizer=TORCH_ADAM, scheduler={"type": "StepLR", "params": {"step_size": 3}}),
    ),
    "DS703": (
        ds(optimizer=TORCH_ADAM, bf16={"enabled": True}, fp16={"enabled": False, "auto_cast": True}),
        ds(optimizer=TORCH_ADAM, bf16={"enabled": True}),
    ),
    "DS302": (ds(optimizer=TORCH_ADAM, steps_per_print="auto"), ds(optimizer=TORCH_ADAM, steps_per_print=10)),
    "DS105": (
        ds({"stage": 1}, optimizer=TORCH_ADAM, gradient_clipping="1.0"),
        ds({"stage": 1}, optimizer=TORCH_ADAM, gradient_clipping=1.0),
    ),
}


@pytest.mark.slow
def test_what_is_said_to_fail_later_fails_when_the_engine_starts_or_steps(oracle: Oracle) -> None:
    port = free_port()
    for code, (faulty, sound) in LATER.items():
        assert any(each.code == code and each.severity == "error" for each in lint(**faulty)), code
        assert oracle.ask("deepspeed", config=faulty["deepspeed"])["ok"], f"{code}: the file itself is read"
        assert not oracle.ask("initialize", config=faulty["deepspeed"], port=port)["ok"], code
        answer = oracle.ask("initialize", config=sound["deepspeed"], port=port)
        assert answer["ok"], f"{code}: {answer}"
        assert not [each for each in lint(**sound) if each.severity == "error"], code


def _launched(oracle: Oracle, job: dict[str, Any], *argv: str) -> dict[str, Any]:
    answer = oracle.ask("accelerate", text=job["accelerate"], argv=list(argv))
    assert answer["ok"], answer
    value: dict[str, Any] = answer["value"]
    return value


def test_types_that_start_one_process(oracle: Oracle) -> None:
    assert _launched(oracle, ac("MULTI_CPU"))["launcher"] == "simple"
    assert _launched(oracle, ac("NO"))["launcher"] == "simple"
    assert _launched(oracle, ac("MULTI_GPU"))["per_node"] == "8"


def test_use_cpu_reaches_the_processes_of_a_single_launch_alone(oracle: Oracle) -> None:
    for job, passed in zip(ACCELERATE_PAIRS["AC210"], (False, True), strict=True):
        assert ("ACCELERATE_USE_CPU" in _launched(oracle, job)["environment"]) == passed


def test_several_machines_without_a_hostfile_get_one_named_none(oracle: Oracle) -> None:
    for job, missing in zip(ACCELERATE_PAIRS["AC211"], (True, False), strict=True):
        assert (_launched(oracle, job)["command"][1:3] == ["--hostfile", "None"]) == missing


def test_a_deepspeed_section_under_another_type_reaches_nobody(oracle: Oracle) -> None:
    environment = _launched(oracle, ACCELERATE_PAIRS["AC207"][0])["environment"]
    assert not [name for name in environment if "DEEPSPEED" in name]


def test_dynamo_is_not_passed_on_under_deepspeed(oracle: Oracle) -> None:
    text = "dynamo_config:\n  dynamo_backend: INDUCTOR\n"
    assert not [name for name in _launched(oracle, ac("DEEPSPEED", text))["environment"] if "DYNAMO" in name]
    assert _launched(oracle, ac("MULTI_GPU", text))["environment"]["ACCELERATE_DYNAMO_BACKEND"] == "INDUCTOR"


def _plugin(oracle: Oracle, job: dict[str, Any], **details: Any) -> dict[str, Any]:
    environment = _launched(oracle, job)["environment"]
    environment.pop("ACCELERATE_DEEPSPEED_CONFIG_FILE", None)
    return oracle.ask("plugin", kind="deepspeed", environment=environment, **details)


def test_settings_beside_a_deepspeed_file_stop_the_plugin(oracle: Oracle) -> None:
    config = ds(ZERO2)["deepspeed"]
    assert _plugin(oracle, FILE_ONLY, config=config)["ok"]
    for job in (
        plugin("deepspeed_config_file: ds.json\nzero_stage: 2"),
        ac("DEEPSPEED", FILE_ONLY["accelerate"].split("'\n")[1], mixed_precision="bf16"),
    ):
        assert "will be ignored" in _plugin(oracle, job, config=config)["message"]
        assert "AC301" in [finding.code for finding in lint(**job)]


def test_an_nvme_path_in_the_yaml_becomes_none(oracle: Oracle) -> None:
    built = _plugin(oracle, ACCELERATE_PAIRS["AC302"][0])["value"]
    assert built["zero_optimization"]["offload_optimizer"] == {"device": "nvme", "nvme_path": "none"}


def test_a_clipping_of_zero_is_left_out_so_that_deepspeed_clips_at_one(oracle: Oracle) -> None:
    built = _plugin(oracle, ACCELERATE_PAIRS["AC304"][0])["value"]
    assert "gradient_clipping" not in built
    assert _effective(oracle, {"deepspeed": {"train_batch_size": 8}})["gradient_clipping"] == 1.0


def test_a_stage_that_is_not_written_is_two(oracle: Oracle) -> None:
    assert _plugin(oracle, ACCELERATE_PAIRS["AC305"][0])["value"]["zero_optimization"]["stage"] == 2


def test_accelerate_writes_one_into_a_file_without_accumulation(oracle: Oracle) -> None:
    config = ds(ZERO2, gradient_accumulation_steps=ABSENT)["deepspeed"]
    assert _plugin(oracle, FILE_ONLY, config=config)["value"]["gradient_accumulation_steps"] == 1


def test_accelerate_stumbles_over_the_oldest_spelling_of_zero(oracle: Oracle) -> None:
    job = ds(True)
    assert "no attribute" in _plugin(oracle, FILE_ONLY, config=job["deepspeed"])["message"]
    assert [each.severity for each in lint(**job, **FILE_ONLY) if each.code == "DS108"] == ["error"]


def test_accelerate_refuses_a_file_without_zero(oracle: Oracle) -> None:
    assert "ZeRO" in _plugin(oracle, FILE_ONLY, config=ds()["deepspeed"])["message"]


def test_the_old_name_of_backward_prefetch_prefetches_nothing(oracle: Oracle) -> None:
    for job, prefetches in zip(ACCELERATE_PAIRS["AC102"], (False, True), strict=True):
        assert ("FSDP_BACKWARD_PREFETCH" in _launched(oracle, job)["environment"]) == prefetches


def test_a_nested_key_can_set_another_argument(oracle: Oracle) -> None:
    assert _launched(oracle, fsdp("num_processes: 3"))["num_processes"] == 8  # it becomes fsdp_num_processes
    job = plugin("zero_stage: 2\nnum_processes: 3")
    assert _launched(oracle, job)["num_processes"] == 3
    assert "over the num_processes that is written" in next(each.effect for each in lint(**job) if each.code == "AC102")


@pytest.mark.parametrize("kind", ["'NO'", "NO", "DATA_PARALLEL"])
def test_nothing_is_launched_on_sagemaker(oracle: Oracle, kind: str) -> None:
    job: dict[str, Any] = {"accelerate": SAGEMAKER + f"distributed_type: {kind}\n"}
    answer = oracle.ask("accelerate", text=job["accelerate"])
    found = [each for each in lint(**job) if each.code == "AC213"]
    assert not answer["ok"] and [each.severity for each in found] == ["error"]
    named = "num_processes" if kind == "'NO'" else "parallelism_config"
    assert named in answer["message"] and named in found[0].effect


def test_the_last_of_two_equal_keys_wins_in_yaml(oracle: Oracle) -> None:
    assert _launched(oracle, ACCELERATE_PAIRS["RD201"][0])["num_processes"] == 4


@pytest.mark.parametrize(
    ("precision", "sections", "outcome"),
    [
        ("bf16", {"fp16": {"enabled": True}}, "refused"),
        ("fp16", {"bf16": {"enabled": True}}, "refused"),
        ("bf16", {"bf16": {"enabled": False}}, "fp32"),
        ("bf16", {"bf16": {"enabled": "auto"}}, "bf16"),
        ("bf16", {}, "bf16"),
        ("no", {"bf16": {"enabled": "auto"}}, "fp32"),
    ],
)
def test_precision_of_two_sources(oracle: Oracle, precision: str, sections: dict[str, Any], outcome: str) -> None:
    from gradwire.targets.job import LaunchFacts

    job = ds(ZERO2, **sections)
    answer = _plugin(oracle, FILE_ONLY, config=job["deepspeed"], mixed_precision=precision)
    assert answer["ok"] == (outcome != "refused")
    if answer["ok"]:
        assert bool(answer["value"]["bf16"]["enabled"]) == (outcome == "bf16")
    found = [
        finding
        for finding in lint(**job, **FILE_ONLY, facts=LaunchFacts(mixed_precision=precision))
        if finding.code in ("PR102", "PR103")
    ]
    assert bool(found) == (outcome != "bf16")


def test_the_trainer_stops_at_values_that_differ_and_fills_the_rest(oracle: Oracle) -> None:
    for code in ("TR101",):
        for job, stops in zip(ACCELERATE_PAIRS[code], (True, False), strict=True):
            arguments = {key: value for key, value in job["trainer"].items() if key != "bf16"}
            assert oracle.ask("fill", config=job["deepspeed"], arguments=arguments)["ok"] != stops


def test_an_argument_does_not_arrive_where_the_file_lacks_the_key(oracle: Oracle) -> None:
    config = ds(ZERO2, gradient_clipping=ABSENT, gradient_accumulation_steps=ABSENT)["deepspeed"]
    arguments = {"per_device_train_batch_size": 2, "max_grad_norm": 0.3, "gradient_accumulation_steps": 4}
    filled = oracle.ask("fill", config=config, arguments=arguments)["value"]
    assert "gradient_clipping" not in filled and "gradient_accumulation_steps" not in filled


def test_the_trainer_keeps_a_number_that_yaml_reads_as_text(oracle: Oracle) -> None:
    config = {"train_micro_batch_size_per_gpu": 8, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}}
    filled = oracle.ask("fill", config=config, arguments={"learning_rate": "1e-5"})
    assert filled["value"]["optimizer"]["params"]["lr"] == "1e-5"
    assert not oracle.ask("construct", what="optimizer", name="AdamW", params={"lr": "1e-5"})["ok"]


def test_the_trainer_leaves_autos_that_it_does_not_know(oracle: Oracle) -> None:
    config = ds(
        {
            "stage": 2,
            "reduce_bucket_size": "auto",
            "stage3_prefetch_bucket_size": "auto",
            "stage3_max_live_parameters": "auto",
        }
    )["deepspeed"]
    filled = oracle.ask("fill", config=config, arguments={"per_device_train_batch_size": 2})["value"][
        "zero_optimization"
    ]
    assert filled["reduce_bucket_size"] == 64 * 64
    left = {key for key, value in filled.items() if value == "auto"}
    said = {finding.path.split(".")[1] for finding in lint(config) if finding.code == "DS301"}
    assert left == said == {"stage3_prefetch_bucket_size", "stage3_max_live_parameters"}


def test_text_that_only_deepspeed_reads_is_said_to_be_so(oracle: Oracle) -> None:
    for code in ("RD202", "RD203"):
        text = ACCELERATE_PAIRS[code][0]["deepspeed"]
        assert oracle.ask("deepspeed", text=text)["ok"], code
    repeated = '{"train_batch_size": 8, "train_batch_size": 4}'
    assert "Duplicate keys" in oracle.ask("deepspeed", text=repeated)["message"]
    assert "RD201" in [finding.code for finding in lint(repeated)]


def test_documents_of_the_pairs_are_what_their_kind_says() -> None:
    from gradwire.targets.loading import parse_document

    for code, pair in {**PAIRS, **ACCELERATE_PAIRS}.items():
        for job in pair:
            for kind, name in (("deepspeed", "c.json"), ("accelerate", "c.yaml")):
                if kind in job and not isinstance(job[kind], dict):
                    parsed = parse_document(job[kind], source=name)
                    assert isinstance(parsed, Document) and parsed.kind == kind, code
