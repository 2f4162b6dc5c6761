"""MFU of a watched command: from the model that was seen, from what was given, or why there is none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gradwire.measure.rank_log import RankLog, RankShape
from gradwire.measure.totals import throughput_of, totals_of
from gradwire.measure.watched import _record
from gradwire.measure.watched_utilization import GivenFigures, watched_utilization
from tests.measure.test_watched import SHAPE, SUBJECT, facts, log, start

H200 = "NVIDIA H200"
# 6 (10 - 4) + 12 x 2 x 3 x 16, each sequence having 64 slots in 4 samples.
PER_TOKEN = 36 + 72 * 16
NOTHING = GivenFigures()


def said(shape: RankShape = SHAPE, **changes: Any) -> RankLog:
    """One rank that trains 60 tokens a second, and what is known of its model."""
    subject = msgspec.structs.replace(SUBJECT, **{"gradient_checkpointing": False, **changes}, shape=shape)
    return msgspec.structs.replace(log(0, [1.0] * 3, world_size=1), facts=facts(subject=subject))


def utilized(one: RankLog, given: GivenFigures = NOTHING, *others: RankLog, device: str = H200) -> Any:
    logs = [one, *others]
    totals = totals_of([_record(each, 3, 1) for each in logs], warmup_steps=1)
    return watched_utilization(logs, totals.timed, throughput_of(totals, len(logs)), device, given)


def shaped(**changes: Any) -> RankShape:
    return msgspec.structs.replace(SHAPE, **changes)


def test_the_model_that_was_seen_gives_the_share() -> None:
    found = utilized(said())
    assert (found.flops_per_token, found.model_flops_per_second_per_rank) == (PER_TOKEN, PER_TOKEN * 60.0)
    assert (found.peak_kind, found.peak_flops_per_second) == ("data-sheet", 989.5e12)
    assert (found.mfu, found.hfu, found.reason) == (PER_TOKEN * 60 / 989.5e12, PER_TOKEN * 60 / 989.5e12, None)
    assert found.flops_formula.startswith("6 N + 12 L h s: N 6 parameters in matrix products")
    assert "L 2, h 3, s 16; attention whole" in found.flops_formula


def test_recomputation_is_counted_apart_and_only_where_it_can_be_known() -> None:
    again = utilized(said(gradient_checkpointing=True))
    assert again.mfu == PER_TOKEN * 60 / 989.5e12
    assert again.hfu == pytest.approx((PER_TOKEN + (PER_TOKEN - 6) / 3) * 60 / 989.5e12)
    assert utilized(said(shaped(output_parameters=None))).hfu is None


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (shaped(layers=None, hidden_size=None), "pass --layers and --hidden-size, or its FLOPs with --flops-per-token"),
        (shaped(reason="7 parameters are frozen"), "not be what the model computes: 7 parameters are frozen; --flops-"),
    ],
)
def test_what_is_missing_is_named_with_the_option_that_gives_it(shape: RankShape, reason: str) -> None:
    found = utilized(said(shape))
    assert (found.mfu, found.hfu, found.flops_per_token) == (None, None, None)
    assert reason in found.reason


def test_sizes_that_are_given_fill_in_for_those_that_were_not_seen() -> None:
    found = utilized(said(shaped(layers=None, hidden_size=None)), GivenFigures(layers=2, hidden_size=3))
    assert found.flops_per_token == PER_TOKEN


def test_flops_and_a_peak_by_hand_need_nothing_of_the_model() -> None:
    by_hand = GivenFigures(flops_per_token=100.0, peak_flops=24_000.0)
    found = utilized(said(shaped(reason="experts"), products=None), by_hand)
    assert (found.mfu, found.hfu, found.peak_kind) == (0.25, None, "given")
    assert found.flops_formula == "given: --flops-per-token"
    unseen = RankLog(start=start(world_size=1), steps=said().steps, facts=None)
    assert utilized(unseen, by_hand).mfu == 0.25
    assert "the run ended before its model was described" in utilized(unseen).reason


def test_more_than_the_peak_is_an_error_in_the_inputs() -> None:
    found = utilized(said(), GivenFigures(flops_per_token=100.0, peak_flops=5_000.0))
    assert found.mfu is None
    assert "120% of the given peak cannot be" in found.reason


@pytest.mark.parametrize(
    ("products", "device", "reason"),
    [
        (
            None,
            H200,
            "the data type of the matrix products could not be told; pass the device's peak with --peak-flops",
        ),
        (
            "fp8",
            H200,
            "some matrix products are fp8 and others are not, so no one peak is theirs; pass one with --peak",
        ),
        ("tf32", "Tesla T4", "'Tesla T4' has no matrix unit for tf32; --peak-flops gives one"),
        ("bf16", "NVIDIA Future", "the peak FLOP/s of 'NVIDIA Future' is not known to gradwire; `gradwire doctor --pe"),
        ("bf16", "Tesla T4", "'Tesla T4' has no matrix unit for bf16; --peak-flops gives one"),
    ],
)
def test_a_peak_that_is_not_known_is_none(products: Any, device: str, reason: str) -> None:
    found = utilized(said(products=products), device=device)
    assert (found.mfu, found.flops_per_token) == (None, PER_TOKEN)
    assert found.reason.startswith(reason)


def test_without_tokens_or_a_timed_step_there_is_no_share() -> None:
    images = msgspec.structs.replace(log(0, [1.0] * 3, world_size=1, tokens=None), facts=said().facts)
    throughput = msgspec.structs.replace(throughput_of(totals_of([], warmup_steps=0), 1), timed_seconds=1.0)
    assert watched_utilization([images], [1, 2], throughput, H200, NOTHING).reason == (
        "no tokens were seen, and FLOPs are counted per token"
    )
    throughput = msgspec.structs.replace(throughput, timed_seconds=0.0)
    assert watched_utilization([images], [], throughput, H200, NOTHING).reason == "no step was timed"


def test_a_rank_that_is_given_no_tokens_holds_a_part_of_the_model() -> None:
    assert "some hold a part of the model only" in utilized(said(), NOTHING, log(1, [1.0] * 3, tokens=None)).reason


def test_the_length_is_that_of_the_sequence_a_token_is_in() -> None:
    one = said()
    short = msgspec.structs.replace(one.steps[1], slots=16, tokens=16)
    found = utilized(msgspec.structs.replace(one, steps=[one.steps[0], short, one.steps[2]]))
    # 16 tokens in sequences of 4, 64 in sequences of 16.
    assert found.flops_per_token == pytest.approx(36 + 72 * (16 * 4 + 64 * 16) / 80)
    assert "s 13.6, a mean over the tokens" in found.flops_formula
