"""The measurement of a run, built from what its ranks recorded."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradwire.documents.measurement_schema import Energy
from gradwire.documents.recipe_schema import Pipeline
from gradwire.errors import UsageError
from gradwire.measure.energy import DeviceEnergy
from gradwire.measure.measurement import read_measurement, write_measurement

Make = Callable[..., Any]
SECONDS = st.integers(1, 2**16).map(lambda ticks: ticks / 1024)


def test_a_step_lasts_as_long_as_on_its_slowest_rank(plan: Make, record: Make, measure: Make) -> None:
    measurement = measure(plan(warmup_steps=0), [record([1.0, 4.0, 2.0]), record([3.0, 2.0, 2.0])])
    assert measurement.step_seconds.each == [3.0, 4.0, 2.0]
    assert measurement.throughput.timed_seconds == 9.0


def test_work_is_summed_over_ranks_and_divided_by_the_timed_seconds(plan: Make, record: Make, measure: Make) -> None:
    measurement = measure(plan(warmup_steps=1), [record([9.0, 1.0, 0.5]), record([8.0, 0.5, 1.0])])
    throughput = measurement.throughput
    assert (throughput.timed_samples, throughput.timed_tokens, throughput.timed_seconds) == (16, 256, 2.0)
    assert (throughput.samples_per_second, throughput.tokens_per_second) == (8.0, 128.0)
    assert (throughput.samples_per_second_per_rank, throughput.tokens_per_second_per_rank) == (4.0, 64.0)


def test_warmup_steps_are_left_out_of_every_timing(plan: Make, record: Make, measure: Make) -> None:
    seconds = [60.0, 30.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    measurement = measure(plan(warmup_steps=2), [record(seconds)] * 2)
    assert (measurement.steps.trained, measurement.steps.warmup, measurement.steps.timed) == (7, 2, 5)
    timing = measurement.step_seconds
    assert (timing.median, timing.mean, timing.minimum, timing.maximum) == (3.0, 3.0, 1.0, 5.0)
    assert timing.p95 == pytest.approx(4.8)
    assert timing.each == seconds


def test_a_rank_without_data_of_its_own_adds_time_but_no_work(plan: Make, record: Make, measure: Make) -> None:
    pipelined = plan(warmup_steps=0, pipeline=Pipeline(chunks=2, stages=2))
    measurement = measure(pipelined, [record([1.0, 1.0]), record([2.0, 2.0], samples=0, tokens=0)])
    assert measurement.throughput.tokens_per_second == 128 / 4.0
    assert measurement.throughput.tokens_per_second_per_rank == 16.0
    assert measurement.notes == []


def test_a_step_of_several_micro_steps_counts_them_all(plan: Make, record: Make, measure: Make) -> None:
    # DeepSpeed PR #2888, nanochat#177: a step's time or its tokens were those of one micro-step.
    accumulated = plan(warmup_steps=0, gradient_accumulation=4)
    measurement = measure(accumulated, [record([4.0], samples=16, tokens=256)] * 2)
    assert measurement.throughput.tokens_per_second == accumulated.batch.tokens_per_step / 4.0
    assert measurement.notes == []


def test_peaks_are_the_largest_over_ranks(plan: Make, record: Make, measure: Make) -> None:
    memory = measure(
        plan(), [record([1.0], allocated=5, reserved=9, process=7), record([1.0], allocated=6, reserved=8, process=3)]
    ).memory
    assert (memory.peak_device_allocated_bytes, memory.peak_device_reserved_bytes) == (6, 9)
    assert memory.peak_process_bytes == 7


def test_ranks_without_device_memory_have_no_device_peak(plan: Make, record: Make, measure: Make) -> None:
    memory = measure(plan(), [record([1.0])] * 2).memory
    assert (memory.peak_device_allocated_bytes, memory.peak_device_reserved_bytes) == (None, None)


@pytest.mark.parametrize(("trained", "asked"), [(2, 2), (2, 5), (0, 3), (0, 0)])
def test_warmup_as_long_as_the_run_gives_no_rates_and_a_note(
    plan: Make, record: Make, measure: Make, trained: int, asked: int
) -> None:
    measurement = measure(plan(warmup_steps=asked), [record([1.0] * trained)] * 2)
    assert (measurement.steps.trained, measurement.steps.warmup, measurement.steps.timed) == (trained, trained, 0)
    assert measurement.throughput.samples_per_second is None
    assert measurement.throughput.tokens_per_second_per_rank is None
    assert measurement.step_seconds.median is None
    assert measurement.utilization.reason == "no step was timed"
    (note,) = measurement.notes
    assert note.startswith("no step was timed") and str(asked) in note


def test_steps_of_no_time_give_no_rate_and_a_note(plan: Make, record: Make, measure: Make) -> None:
    measurement = measure(plan(warmup_steps=0), [record([0.0, 0.0])] * 2)
    assert measurement.throughput.tokens_per_second is None
    assert measurement.step_seconds.median == 0.0
    assert "took 0 seconds by the clock" in measurement.notes[0]


def test_another_batch_than_the_plans_is_counted_as_it_was_and_said(plan: Make, record: Make, measure: Make) -> None:
    measurement = measure(plan(warmup_steps=0), [record([1.0, 1.0], samples=8, tokens=128)] * 2)
    assert measurement.throughput.samples_per_second == 16.0
    assert measurement.notes == [
        "2 of 2 steps did not train the plan's global batch of 8 sequences: step 0 trained 16; "
        "the rates are of what was trained"
    ]


def test_a_loss_that_is_not_finite_becomes_null_and_a_note(plan: Make, record: Make, measure: Make) -> None:
    measurement = measure(
        plan(), [record([1.0] * 3)] * 2, losses=[2.0, math.nan, math.inf], gradient_norms=[1.0, math.nan, None]
    )
    assert measurement.losses == [2.0, None, None]
    assert measurement.gradient_norms == [1.0, None, None]
    assert measurement.notes == ["the loss is not finite at step 1, 2"]


def test_the_callers_notes_come_first(plan: Make, record: Make, measure: Make) -> None:
    assert measure(plan(warmup_steps=0), [record([0.0])] * 2, notes=["a word"]).notes[0] == "a word"


@given(
    each=st.lists(st.lists(SECONDS, min_size=4, max_size=4), min_size=2, max_size=5),
    order=st.randoms(use_true_random=False),
)
def test_the_order_of_ranks_changes_nothing(
    plan: Make, record: Make, measure: Make, each: list[list[float]], order: random.Random
) -> None:
    settled = plan(num_gpus=len(each), warmup_steps=1)
    ranks = [record(seconds, process=number + 1) for number, seconds in enumerate(each)]
    shuffled = list(ranks)
    order.shuffle(shuffled)
    assert measure(settled, shuffled) == measure(settled, ranks)


@given(seconds=st.lists(SECONDS, min_size=2, max_size=30), world_size=st.integers(1, 8))
def test_rate_times_time_is_the_work(
    plan: Make, record: Make, measure: Make, seconds: list[float], world_size: int
) -> None:
    throughput = measure(plan(num_gpus=world_size), [record(seconds)] * world_size).throughput
    assert math.isclose(throughput.tokens_per_second * throughput.timed_seconds, throughput.timed_tokens)
    assert math.isclose(throughput.samples_per_second_per_rank * world_size, throughput.samples_per_second)
    assert throughput.timed_tokens == 64 * world_size * (len(seconds) - 1)


@given(seconds=st.lists(SECONDS, min_size=1, max_size=30))
def test_step_times_are_in_order(plan: Make, record: Make, measure: Make, seconds: list[float]) -> None:
    timing = measure(plan(num_gpus=1, warmup_steps=0), [record(seconds)]).step_seconds
    assert timing.minimum <= timing.median <= timing.p95 <= timing.maximum
    assert timing.minimum <= timing.mean <= timing.maximum


def test_records_that_contradict_the_plan_or_each_other_are_refused(plan: Make, record: Make, measure: Make) -> None:
    with pytest.raises(ValueError, match="1 records for 2 ranks"):
        measure(plan(), [record([1.0])])
    with pytest.raises(ValueError, match="rank 1 step_seconds has 1"):
        measure(plan(), [record([1.0, 1.0]), record([1.0])])
    with pytest.raises(ValueError, match="losses has 1"):
        measure(plan(), [record([1.0, 1.0])] * 2, losses=[1.0])
    with pytest.raises(ValueError, match="rank 1 recorded a step that took no finite time"):
        measure(plan(), [record([1.0]), record([-1.0])])
    with pytest.raises(ValueError, match="less than nothing"):
        measure(plan(), [record([1.0]), record([1.0], tokens=-1)])


def test_a_measurement_is_read_back_as_it_was_written(plan: Make, record: Make, measure: Make, tmp_path: Path) -> None:
    measurement = measure(plan(), [record([1.0, 0.1, 0.3])] * 2, losses=[2.5, math.nan, 2.0], notes=["µs, not ms"])
    write_measurement(tmp_path / "new" / "measurement.json", measurement)
    assert read_measurement(tmp_path / "new" / "measurement.json") == measurement
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["measurement.json"]


def test_the_same_measurement_has_the_same_bytes(plan: Make, record: Make, measure: Make, tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        write_measurement(tmp_path / name, measure(plan(), [record([1.0, 0.1])] * 2))
    text = (tmp_path / "a.json").read_text()
    assert text == (tmp_path / "b.json").read_text()
    assert text.endswith("}\n")


def test_a_measurement_that_is_none_is_refused_with_every_violation(
    plan: Make, record: Make, measure: Make, tmp_path: Path
) -> None:
    path = tmp_path / "measurement.json"
    write_measurement(path, measure(plan(), [record([1.0, 0.1])] * 2))
    path.write_text(
        path.read_text().replace('"backend": "native"', '"backend": "mpi"').replace('"warmup": 1', '"warmup": 1.0')
    )
    with pytest.raises(UsageError) as caught:
        read_measurement(path)
    assert "backend: 'mpi' is not one of" in str(caught.value)
    assert "steps.warmup: 1.0 is not of type 'integer'" in str(caught.value)


def test_a_step_in_which_a_clock_jumped_on_one_rank_is_timed_on_none(plan: Make, record: Make, measure: Make) -> None:
    jumped = replace(record([1.0, 0.0, 1.0]), untimed_steps=[1], notes=["the clock went backwards in step 2"])
    measurement = measure(plan(warmup_steps=0), [record([1.0, 90.0, 1.0]), jumped])
    assert (measurement.steps.trained, measurement.steps.timed) == (3, 2)
    assert (measurement.step_seconds.median, measurement.step_seconds.maximum) == (1.0, 1.0)
    assert measurement.throughput.tokens_per_second == 128.0
    assert measurement.notes == ["rank 1: the clock went backwards in step 2"]


def test_padding_and_excluded_time_are_reported(plan: Make, record: Make, measure: Make) -> None:
    padded = replace(record([2.0, 2.0]), slots=[96, 80], paused_seconds=7.5)
    measurement = measure(plan(warmup_steps=0), [padded, record([1.0, 2.0])])
    assert (measurement.throughput.timed_tokens, measurement.throughput.timed_slots) == (256, 304)
    assert (measurement.throughput.tokens_per_second, measurement.throughput.slots_per_second) == (64.0, 76.0)
    assert measurement.steps.excluded_seconds == 7.5


def test_energy_is_summed_over_devices_that_ranks_may_share(plan: Make, record: Make, measure: Make) -> None:
    one = DeviceEnergy(joules=600.0, seconds=3.0, device="a", reason=None)
    other = DeviceEnergy(joules=300.0, seconds=3.0, device="b", reason=None)
    apart = measure(plan(warmup_steps=0), [replace(record([1.5]), energy=each) for each in (one, other)])
    assert apart.energy == Energy(joules=900.0, joules_per_token=900 / 128, mean_watts_per_device=150.0, reason=None)
    shared = measure(plan(warmup_steps=0), [replace(record([1.5]), energy=one)] * 2)
    assert (shared.energy.joules, shared.energy.mean_watts_per_device) == (600.0, 200.0)


def test_energy_that_one_device_does_not_report_is_none_with_its_reason(
    plan: Make, record: Make, measure: Make
) -> None:
    known = DeviceEnergy(joules=600.0, seconds=3.0, device="a", reason=None)
    unknown = DeviceEnergy(joules=None, seconds=3.0, device="b", reason="too old")
    energy = measure(plan(), [replace(record([1.0]), energy=each) for each in (known, unknown)]).energy
    assert energy == Energy(joules=None, joules_per_token=None, mean_watts_per_device=None, reason="too old")
    half = measure(plan(), [replace(record([1.0]), energy=each) for each in (known, None)]).energy
    assert half.reason == "not every rank asked its device for it"
