"""Planted causes, as time splits, are named first, with what to try."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gradwire.compare.cause import cause_in_short, causes_of
from gradwire.compare.situation import Situation, mean_split, situation_of
from gradwire.documents.measurement_schema import TimeSplit
from gradwire.documents.recipe_schema import Pipeline
from gradwire.measure.time_split import PARTS, step_of

Make = Callable[..., Any]


def split(slowest_rank: int | None = None, **seconds: float | None) -> TimeSplit:
    parts: dict[str, Any] = {**dict.fromkeys(PARTS, 0.0), **seconds}
    return TimeSplit(**parts, slowest_rank=slowest_rank)


@pytest.fixture(scope="module")
def situation(ran: Make) -> Situation:
    """Four ranks under weak scaling, eight sequences each, DDP without compression; the baseline is one rank."""
    measurement = ran(num_gpus=4, batch_size_per_gpu=8)[1]
    return situation_of(
        measurement,
        scaling="weak",
        baseline_num_gpus=1,
        baseline_split=split(compute=0.8, optimizer=0.1, input_wait=0.05),
    )


PLANTED = {
    "input-bound": split(compute=0.8, optimizer=0.1, input_wait=0.9, exposed_communication=0.2),
    "communication-bound": split(compute=0.8, optimizer=0.1, exposed_communication=0.7, input_wait=0.1),
    "straggler": split(compute=0.8, optimizer=0.1, straggler_wait=0.6, exposed_communication=0.1, slowest_rank=3),
    "pipeline-bubble": split(compute=0.8, pipeline_bubble=0.5, exposed_communication=0.1),
    "slow-compute": split(compute=1.6, optimizer=0.1, exposed_communication=0.1),
    "slow-optimizer": split(compute=0.8, optimizer=0.9),
    "unaccounted": split(compute=0.8, other=0.9),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_cause_is_named_first(situation: Situation, kind: str) -> None:
    causes = causes_of(PLANTED[kind], situation, explains_loss=True)
    assert causes[0].kind == kind
    assert causes[0].remedies
    assert kind in cause_in_short(causes[0])


@pytest.mark.parametrize("kind", sorted(set(PLANTED) - {"slow-compute"}))
def test_without_a_baseline_the_largest_waste_is_named_first(situation: Situation, kind: str) -> None:
    alone = dataclasses.replace(situation, baseline_num_gpus=None, baseline_split=None)
    assert causes_of(PLANTED[kind], alone)[0].kind == kind


def test_an_input_bound_run_is_told_to_leave_the_network_alone(situation: Situation) -> None:
    cause = causes_of(PLANTED["input-bound"], situation, explains_loss=True)[0]
    assert "the network has no part in it" in cause.evidence
    assert cause.remedies[0].action.startswith("more loader workers")
    assert cause.remedies[0].predicted_speedup == pytest.approx(2.0 / 1.1)


def test_compression_comes_with_its_predicted_gain(situation: Situation) -> None:
    cause = causes_of(PLANTED["communication-bound"], situation, explains_loss=True)[0]
    gains = {
        remedy.action.partition(":")[0] + remedy.action[-14:]: remedy.predicted_speedup for remedy in cause.remedies
    }
    assert [remedy.action.split(":")[0] for remedy in cause.remedies] == [
        "communication.overlap.bucket_cap_mb",
        "twice the gradient_accumulation",
        "communication.compression.method",
        "communication.compression.method",
        "look at the link itself",
    ]
    assert gains["communication.compression.method" + "half the bytes"] == pytest.approx(1.7 / (1.7 - 0.35))
    assert cause.remedies[3].predicted_speedup == pytest.approx(1.7)
    assert cause.share == pytest.approx(0.7 / 1.7)


def test_what_is_compressed_is_not_told_to_compress(ran: Make, situation: Situation) -> None:
    workload = replace(situation.workload, compression="powersgd rank 4, warm start")
    cause = causes_of(
        PLANTED["communication-bound"], dataclasses.replace(situation, workload=workload), explains_loss=True
    )[0]
    actions = [remedy.action for remedy in cause.remedies]
    assert "a smaller matrix_approximation_rank" in actions
    assert not any("compression.method" in action for action in actions)


def test_a_slow_link_is_told_from_a_small_batch(situation: Situation) -> None:
    waiting = split(compute=0.2, optimizer=0.05, exposed_communication=0.9)
    few = dataclasses.replace(situation, workload=replace(situation.workload, batch_size_per_gpu=1))
    slow = dataclasses.replace(few, gradient_bytes=20_000_000)
    fast = dataclasses.replace(few, gradient_bytes=2_000_000_000)
    assert causes_of(waiting, slow, explains_loss=True)[0].kind == "communication-bound"
    assert "33.3 MB/s at most, which is a slow link" in causes_of(waiting, slow, explains_loss=True)[0].evidence
    assert causes_of(waiting, fast, explains_loss=True)[0].kind == "batch-too-small"
    assert causes_of(waiting, few)[0].kind == "batch-too-small"


def test_a_batch_too_small_under_strong_scaling_is_named(ran: Make) -> None:
    measurement = ran(num_gpus=4, batch_size_per_gpu=2)[1]
    strong = situation_of(
        measurement, scaling="strong", baseline_num_gpus=1, baseline_split=split(compute=0.8, optimizer=0.1)
    )
    cause = causes_of(split(compute=0.5, optimizer=0.1, exposed_communication=0.05), strong, explains_loss=True)[0]
    assert cause.kind == "batch-too-small"
    assert "now 2.00 sequences per step" in cause.evidence
    assert [remedy.action for remedy in cause.remedies][:2] == [
        "a larger global batch, if the training bears it",
        "fewer ranks: 2 processes for this batch",
    ]


def test_a_bubble_comes_with_the_numbers_of_its_formula(ran: Make) -> None:
    measurement = ran(num_gpus=4, batch_size_per_gpu=8, pipeline=Pipeline(chunks=4))[1]
    piped = situation_of(measurement, scaling="strong")
    assert (piped.stages, piped.chunks) == (4, 4)
    cause = causes_of(split(compute=0.8, pipeline_bubble=0.6), piped)[0]
    assert "with 4 stages, 4 chunks 42.9 %, 8 chunks 27.3 %, 16 chunks 15.8 %" in cause.evidence
    assert cause.remedies[0].action == "parallelism.pipeline.chunks: 8"
    assert cause.remedies[0].predicted_speedup == pytest.approx(1.4 / 1.1)
    assert cause.remedies[1].action.endswith("with a batch_size_per_gpu that 16 divides (now 8)")
    (by_formula, unknown) = causes_of(None, piped, explains_loss=True)
    assert (by_formula.kind, unknown.kind) == ("pipeline-bubble", "not-recorded")
    assert by_formula.remedies[0].predicted_speedup == pytest.approx((8 / 11) / (4 / 7))


def test_communication_that_was_not_told_apart_is_not_blamed_on_compute(situation: Situation) -> None:
    sharded = dataclasses.replace(situation, workload=replace(situation.workload, strategy="zero3"))
    cause = causes_of(split(compute=1.6, exposed_communication=None), sharded, explains_loss=True)[0]
    assert cause.kind == "slow-compute"
    assert "which could not be told apart" in cause.evidence
    actions = [remedy.action for remedy in cause.remedies]
    assert "zero1 or zero2: weights are not gathered in every pass" in actions
    assert "its split tells communication from compute" in actions[-1]


def test_a_straggler_is_named_by_rank_and_node(situation: Situation) -> None:
    cause = causes_of(PLANTED["straggler"], dataclasses.replace(situation, processes_per_node=2), explains_loss=True)[0]
    assert "rank 3 (node 1)" in cause.evidence
    assert "rank 3 (node 1)" in cause.remedies[0].action


def test_more_processes_than_cores_come_before_what_they_may_have_caused(situation: Situation) -> None:
    crowded = dataclasses.replace(situation, cpu_count=2)
    assert [cause.kind for cause in causes_of(PLANTED["input-bound"], crowded)][:2] == [
        "crowded-machine",
        "input-bound",
    ]
    assert causes_of(PLANTED["input-bound"], dataclasses.replace(crowded, device="cuda"))[0].kind == "input-bound"


def test_what_takes_more_than_waiting_for_a_core_can_comes_before_a_crowd(situation: Situation) -> None:
    # Four processes on two cores: at most half of a step is waiting for a core.
    crowded = dataclasses.replace(situation, cpu_count=2)
    waiting = split(compute=0.4, input_wait=0.6)
    assert [cause.kind for cause in causes_of(waiting, crowded)] == ["input-bound", "crowded-machine"]
    assert causes_of(waiting, dataclasses.replace(crowded, cpu_count=1))[0].kind == "crowded-machine"


def test_a_step_of_compute_has_no_cause(situation: Situation) -> None:
    assert causes_of(split(compute=1.0, optimizer=0.05, exposed_communication=0.05), situation) == []
    assert causes_of(None, situation) == []
    assert causes_of(split(), situation) == []


@settings(deadline=None)
@given(seconds=st.lists(st.floats(0, 10), min_size=len(PARTS), max_size=len(PARTS)))
def test_causes_are_ordered_and_shares_are_shares(situation: Situation, seconds: list[float]) -> None:
    measured = split(**dict(zip(PARTS, seconds, strict=True)))
    for explains_loss in (False, True):
        causes = causes_of(measured, situation, explains_loss=explains_loss)
        amounts = [cause.seconds for cause in causes if cause.seconds is not None and cause.kind != "batch-too-small"]
        assert amounts == sorted(amounts, reverse=True)
        assert sum(cause.share or 0.0 for cause in causes) <= 1 + 1e-9
        assert all((remedy.predicted_speedup or 1) >= 1 for cause in causes for remedy in cause.remedies)


def test_the_mean_split_keeps_a_rank_that_all_agree_on() -> None:
    mean = mean_split([split(compute=1.0, slowest_rank=2), split(compute=3.0, slowest_rank=2)])
    assert mean == split(compute=2.0, slowest_rank=2)
    assert mean is not None
    assert step_of(mean) == 2.0
    other = mean_split([split(slowest_rank=1), split(slowest_rank=2)])
    assert other is not None
    assert other.slowest_rank is None
    assert mean_split([]) is None
    unknown = mean_split([split(compute=2.0, exposed_communication=None), split(compute=4.0)])
    assert unknown == split(compute=3.0, exposed_communication=None)
    assert unknown is not None
    assert step_of(unknown) == 3.0
