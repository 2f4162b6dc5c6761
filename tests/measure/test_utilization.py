"""MFU and HFU, or why there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gradwire.documents.recipe_schema import Model
from gradwire.measure.utilization import hardware_flops_per_token, utilization_of
from gradwire.plan import model_size

Make = Callable[..., Any]
LARGE = Model(family="llama", hidden_size=4096, layers=32, attention_heads=32, sequence_length=4096, vocab_size=32000)
H200 = "NVIDIA H200"


def test_mfu_is_model_flops_over_the_peak(plan: Make) -> None:
    settled = plan(device="cuda", model=LARGE, precision="bf16-true")
    utilization = utilization_of(settled, H200, 9000.0)
    achieved = settled.model_size.flops_per_token * 9000.0
    assert utilization.model_flops_per_second_per_rank == achieved
    assert utilization.peak_flops_per_second == 989.5e12
    assert utilization.mfu == achieved / 989.5e12
    assert utilization.reason is None
    assert utilization.mfu == pytest.approx(0.45, abs=0.1)


def test_the_formula_is_stated_with_its_numbers(plan: Make) -> None:
    settled = plan(device="cuda", model=LARGE, precision="bf16-true")
    utilization = utilization_of(settled, H200, 9000.0)
    counted = settled.model_size.parameters - settled.model_size.embedding_parameters
    assert utilization.flops_per_token == 6 * counted + 12 * 32 * 4096 * 4096
    assert utilization.flops_formula == (
        f"6 N + 12 L h s: N {counted:,} parameters in matrix products, embedding tables of "
        f"{32000 * 4096:,} left out; L 32, h 4096, s 4096; attention whole, not halved for causality; "
        "recomputation not counted"
    )


def test_without_recomputation_hfu_is_mfu(plan: Make) -> None:
    utilization = utilization_of(plan(device="cuda", model=LARGE, precision="bf16-true"), H200, 9000.0)
    assert utilization.hfu == utilization.mfu


def test_recomputation_adds_one_forward_pass_of_the_blocks(plan: Make) -> None:
    settled = plan(device="cuda", model=LARGE, precision="bf16-true", gradient_checkpointing=True)
    utilization = utilization_of(settled, H200, 9000.0)
    size = settled.model_size
    output = 32000 * 4096
    in_blocks = size.parameters - size.embedding_parameters - output
    attention = 32 * 4096 * 4096
    assert hardware_flops_per_token(settled) == pytest.approx(8 * in_blocks + 6 * output + 16 * attention)
    assert utilization.mfu is not None
    assert utilization.hfu is not None
    assert utilization.hfu == pytest.approx(utilization.mfu * hardware_flops_per_token(settled) / size.flops_per_token)
    assert 1.2 < utilization.hfu / utilization.mfu < 4 / 3


def test_both_attention_products_are_counted_and_nothing_is_halved() -> None:
    # torchtitan PR #4366: one of the two products counted. PaLM, appendix B: 12 x layers x hidden x sequence.
    short, long = (
        model_size(Model(family="llama", hidden_size=64, layers=2, attention_heads=4, sequence_length=length))
        for length in (128, 256)
    )
    assert long.parameters == short.parameters
    assert long.flops_per_token - short.flops_per_token == 12 * 2 * 64 * 128


def test_flops_per_token_depend_on_nothing_but_the_model(plan: Make) -> None:
    # DeepSpeed#2292: FLOPs that grow with every profiled step.
    sizes = {plan(model=LARGE, max_steps=steps, num_gpus=ranks).model_size for steps in (1, 100) for ranks in (1, 8)}
    assert len(sizes) == 1


@pytest.mark.parametrize("tokens_per_second", [30_000.0, 1e9])
def test_more_than_the_peak_is_reported_as_wrong_inputs(plan: Make, tokens_per_second: float) -> None:
    # torchtitan#341, Megatron-LM#831: 121 % of the peak as a number.
    utilization = utilization_of(plan(device="cuda", model=LARGE, precision="bf16-true"), H200, tokens_per_second)
    assert (utilization.mfu, utilization.hfu) == (None, None)
    assert utilization.reason is not None
    assert utilization.reason.startswith("the inputs are wrong")
    assert "attention is counted whole" in utilization.reason
    assert utilization.model_flops_per_second_per_rank is not None


def test_recomputation_above_the_peak_is_wrong_too(plan: Make) -> None:
    settled = plan(device="cuda", model=LARGE, precision="bf16-true", gradient_checkpointing=True)
    just_below = 0.9 * 989.5e12 / settled.model_size.flops_per_token
    assert utilization_of(settled, H200, just_below).mfu is None


@pytest.mark.parametrize(
    ("given", "device_name", "reason"),
    [
        ({}, "A Processor", "a cpu has no peak"),
        ({"device": "cuda"}, "NVIDIA Future", "'NVIDIA Future' is not known"),
        ({"device": "cuda", "precision": "bf16-true"}, "Tesla T4", "'Tesla T4' has no matrix unit for bf16-true"),
        ({"device": "cuda", "model": None}, H200, "the recipe has no model"),
    ],
)
def test_a_missing_part_is_named(plan: Make, given: dict[str, Any], device_name: str, reason: str) -> None:
    utilization = utilization_of(plan(**given), device_name, 100.0)
    assert (utilization.mfu, utilization.hfu) == (None, None)
    assert utilization.reason is not None
    assert reason in utilization.reason


def test_a_processor_named_like_a_gpu_has_no_peak(plan: Make) -> None:
    assert utilization_of(plan(device="cpu"), H200, 100.0).peak_flops_per_second is None


def test_without_a_timed_step_there_is_no_rate(plan: Make) -> None:
    utilization = utilization_of(plan(device="cuda"), H200, None)
    assert utilization.model_flops_per_second_per_rank is None
    assert utilization.reason == "no step was timed"
