"""The comparison: cells, baselines, efficiencies, refusals."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gradwire.compare.build import build_comparison
from gradwire.documents.comparison_schema import Baseline, Cell, Comparison
from gradwire.documents.measurement_schema import TimeSplit
from gradwire.documents.recipe_schema import Pipeline
from gradwire.errors import UsageError
from gradwire.measure.document import document_text

Make = Callable[..., Any]
SECONDS = st.integers(1, 2**16).map(lambda ticks: ticks / 1024)


def cell(comparison: Comparison, backend: str, num_gpus: int) -> Cell:
    (found,) = [one for one in comparison.cells if (one.backend, one.num_gpus) == (backend, num_gpus)]
    return found


def test_efficiency_is_throughput_over_the_baselines_times_the_size(ran: Make, compared: Make) -> None:
    comparison = compared(ran(num_gpus=1, seconds=0.9), ran(num_gpus=8, seconds=1.0))
    baseline, eight = comparison.cells
    assert (baseline.speedup, baseline.scaling_efficiency, baseline.grade) == (1.0, 1.0, None)
    assert baseline.baseline_num_gpus == eight.baseline_num_gpus == 1
    assert eight.speedup == pytest.approx(7.2)
    assert eight.scaling_efficiency == pytest.approx(0.9)
    assert eight.grade == "good"
    assert eight.status == "ok"
    assert eight.reason is None


@pytest.mark.parametrize(
    ("seconds", "grade"), [(1.0, "good"), (1 / 0.85, "acceptable"), (1 / 0.7, "acceptable"), (2.0, "poor")]
)
def test_the_grade_is_that_of_the_efficiency(ran: Make, compared: Make, seconds: float, grade: str) -> None:
    assert compared(ran(num_gpus=1), ran(num_gpus=4, seconds=seconds)).cells[1].grade == grade


def test_each_backend_is_against_its_own_smallest_size(ran: Make, compared: Make) -> None:
    comparison = compared(
        ran("native", 4, seconds=1.0),
        ran("native", 2, seconds=1.0),
        ran("deepspeed", 1, seconds=2.0),
        ran("deepspeed", 4, seconds=4.0),
    )
    assert cell(comparison, "native", 2).grade is None
    assert cell(comparison, "native", 4).baseline_num_gpus == 2
    assert cell(comparison, "native", 4).scaling_efficiency == 1.0
    assert cell(comparison, "deepspeed", 4).baseline_num_gpus == 1
    assert cell(comparison, "deepspeed", 4).scaling_efficiency == 0.5


def test_figures_are_medians_over_repeats(ran: Make, compared: Make) -> None:
    comparison = compared(*(ran(seconds=seconds, repeat=number) for number, seconds in enumerate((1.0, 4.0, 2.0))))
    (only,) = comparison.cells
    assert only.repeats == 3
    assert only.step_seconds_median == only.step_seconds_p95 == 2.0
    assert (only.tokens_per_second_minimum, only.tokens_per_second, only.tokens_per_second_maximum) == (16, 32, 64)
    assert only.samples_per_second == 2.0


def test_cells_come_in_the_order_asked_and_runs_in_the_order_made(ran: Make, compared: Make) -> None:
    order = [("deepspeed", 2), ("native", 1), ("deepspeed", 1)]
    comparison = compared(*(ran(backend, size, repeat=repeat) for repeat in (0, 1) for backend, size in order))
    assert [(one.backend, one.num_gpus) for one in comparison.cells] == order
    assert [(one.backend, one.num_gpus, one.repeat) for one in comparison.runs] == [
        (backend, size, repeat) for repeat in (0, 1) for backend, size in order
    ]


def test_a_runs_throughput_is_that_of_its_measurement(ran: Make, compared: Make) -> None:
    run, measurement = ran(seconds=0.5)
    (only,) = compared((run, measurement)).runs
    assert only.samples_per_second == measurement.throughput.samples_per_second == 8.0
    assert only.tokens_per_second == 128.0


def test_losses_are_those_of_the_first_finished_repeat(ran: Make, failed: Make, compared: Make) -> None:
    comparison = compared(
        failed(reason="out of memory"), ran(losses=[3.0, 2.0], repeat=1), ran(losses=[3.0, 1.0], repeat=2)
    )
    (only,) = comparison.cells
    assert (only.final_loss, only.losses, only.repeats) == (2.0, [3.0, 2.0], 2)


def test_memory_is_the_devices_where_there_is_one(ran: Make, compared: Make) -> None:
    assert compared(ran(process_bytes=7), ran(process_bytes=9, repeat=1)).cells[0].peak_memory_bytes == 9
    on_device = compared(ran(process_bytes=7, device_bytes=5, device="cuda"))
    assert on_device.cells[0].peak_memory_bytes == 5


def test_a_cell_without_a_finished_run_is_failed_and_the_rest_stands(ran: Make, failed: Make, compared: Make) -> None:
    comparison = compared(
        ran("native", 1),
        failed("native", 2, reason="the port 29500 is taken"),
        failed("native", 2, reason="the port 29500 is taken", repeat=1),
        ran("native", 4),
    )
    broken = cell(comparison, "native", 2)
    assert (broken.status, broken.reason, broken.repeats) == ("failed", "the port 29500 is taken", 0)
    assert (broken.tokens_per_second, broken.scaling_efficiency, broken.losses) == (None, None, [])
    assert cell(comparison, "native", 4).grade == "good"


def test_a_failed_smallest_size_makes_the_next_one_the_baseline(ran: Make, failed: Make, compared: Make) -> None:
    comparison = compared(failed("native", 1, reason="no"), ran("native", 2), ran("native", 4))
    assert cell(comparison, "native", 2).grade is None
    assert cell(comparison, "native", 4).baseline_num_gpus == 2


@pytest.mark.parametrize(
    ("different", "named"),
    [
        ({"precision": "bf16-mixed"}, "precision: bf16-mixed against fp32"),
        ({"gradient_accumulation": 2}, "gradient_accumulation: 2 against 1"),
        ({"batch_size_per_gpu": 2}, "batch_size_per_gpu: 2 against 4"),
        ({"optimizer": "SGD"}, "optimizer: SGD against AdamW"),
        ({"pipeline": Pipeline(chunks=2, stages=1)}, "pipeline: 1f1b, 2 chunks against none"),
        ({"device_name": "Another"}, "device: cpu Another against cpu A Processor"),
    ],
)
def test_a_run_unlike_its_baseline_has_no_efficiency_and_says_why(
    ran: Make, compared: Make, different: dict[str, Any], named: str
) -> None:
    comparison = compared(ran(num_gpus=1), ran(num_gpus=2, **different))
    two = comparison.cells[1]
    assert two.status == "not-comparable"
    assert two.reason == f"unlike its baseline on 1 process: {named}"
    assert (two.speedup, two.scaling_efficiency, two.grade) == (None, None, None)
    assert two.tokens_per_second is not None


def test_a_batch_that_was_counted_differently_is_no_batch_of_the_recipe(ran: Make, compared: Make) -> None:
    run, measurement = ran(num_gpus=2)
    doubled = replace(measurement.throughput, timed_samples=2 * measurement.throughput.timed_samples)
    comparison = compared(ran(num_gpus=1), (run, replace(measurement, throughput=doubled)))
    assert comparison.cells[1].reason == "unlike its baseline on 1 process: sequences per rank and step: 8 against 4"


def test_another_recipe_is_not_compared(ran: Make, compared: Make) -> None:
    comparison = compared(ran(num_gpus=1), ran(num_gpus=2, learning_rate=0.5))
    assert comparison.cells[1].status == "not-comparable"
    assert "recipe: " in comparison.cells[1].reason
    foreign = compared(ran(num_gpus=1), sha256="f" * 64)
    assert foreign.cells[0].status == "not-comparable"
    assert foreign.cells[0].reason.endswith("against ffffffffffff")


def test_repeats_that_differ_are_no_cell(ran: Make, compared: Make) -> None:
    comparison = compared(ran(), ran(repeat=1, precision="bf16-true"), ran(num_gpus=2))
    assert comparison.cells[0].reason == "its repeats differ: precision: bf16-true against fp32"
    assert comparison.cells[1].grade is None


def test_a_run_without_a_timed_step_has_no_efficiency_and_is_no_baseline(ran: Make, compared: Make) -> None:
    comparison = compared(ran(num_gpus=1, warmup_steps=3), ran(num_gpus=2, warmup_steps=3))
    assert [one.status for one in comparison.cells] == ["not-comparable"] * 2
    assert "no step was timed: 3 steps trained" in comparison.cells[0].reason


def test_a_document_with_rates_and_no_timed_step_is_none_to_compare(ran: Make, compared: Make) -> None:
    run, measurement = ran(num_gpus=2)
    foreign = replace(measurement, steps=replace(measurement.steps, timed=0))
    assert compared(ran(), (run, foreign)).cells[1].status == "not-comparable"


def test_strong_scaling_lets_the_batch_per_rank_change(ran: Make, compared: Make) -> None:
    comparison = compared(
        ran(num_gpus=1, batch_size_per_gpu=8, seconds=1.0),
        ran(num_gpus=2, batch_size_per_gpu=4, seconds=0.5),
        ran(num_gpus=4, batch_size_per_gpu=1, gradient_accumulation=2, seconds=0.5),
        ran(num_gpus=8, batch_size_per_gpu=4, seconds=0.5),
        scaling="strong",
    )
    assert [one.scaling_efficiency for one in comparison.cells] == [1.0, 1.0, 0.5, None]
    assert (
        comparison.cells[3].reason
        == "unlike its baseline on 1 process: sequences per step over all ranks: 32 against 8"
    )


def test_a_pipeline_is_against_one_process_at_the_same_global_batch(ran: Make, compared: Make) -> None:
    pipeline = Pipeline(chunks=4)
    comparison = compared(
        ran(num_gpus=1, pipeline=pipeline, seconds=1.0),
        ran(num_gpus=2, pipeline=pipeline, seconds=0.625),
        scaling="strong",
    )
    assert comparison.cells[1].scaling_efficiency == 0.8
    assert comparison.cells[1].grade == "acceptable"


def test_work_without_tokens_is_compared_by_sequences(ran: Make, compared: Make) -> None:
    def without_tokens(num_gpus: int, seconds: float) -> tuple[Any, Any]:
        run, measurement = ran(num_gpus=num_gpus, seconds=seconds)
        throughput = replace(measurement.throughput, timed_tokens=0, tokens_per_second=0.0)
        return run, replace(measurement, throughput=throughput)

    comparison = compared(without_tokens(1, 1.0), without_tokens(2, 1.25))
    assert comparison.cells[1].scaling_efficiency == 0.8


def test_a_measurement_of_another_run_is_refused(ran: Make, compared: Make) -> None:
    run, _ = ran("accelerate", 2)
    with pytest.raises(UsageError, match=r"asked for accelerate on 2 processes, but .* accelerate on 1"):
        compared((run, ran("accelerate", 1)[1]))
    with pytest.raises(UsageError, match="measured with deepspeed on 2"):
        compared((run, ran("deepspeed", 2)[1]))


def test_a_run_that_ended_well_has_a_measurement(ran: Make, compared: Make) -> None:
    with pytest.raises(ValueError, match="has no measurement"):
        compared((ran()[0], None))


def test_nothing_is_no_comparison() -> None:
    with pytest.raises(UsageError, match="nothing to compare"):
        build_comparison("x", "0" * 64, "weak", [])


def test_a_comparison_fits_its_schema(example: tuple[Comparison, Any]) -> None:
    assert document_text(example[0], "comparison").startswith("{")


@given(seconds=st.lists(SECONDS, min_size=1, max_size=4), sizes=st.sets(st.sampled_from([1, 2, 4, 8]), min_size=1))
def test_equal_step_times_are_ideal_under_weak_scaling(
    ran: Make, compared: Make, seconds: list[float], sizes: set[int]
) -> None:
    runs = [
        ran(num_gpus=size, seconds=second, repeat=repeat)
        for repeat, second in enumerate(seconds)
        for size in sorted(sizes)
    ]
    for one in compared(*runs).cells:
        assert one.scaling_efficiency == pytest.approx(1.0)
        assert one.speedup == pytest.approx(one.num_gpus / min(sizes))


@given(seconds=st.lists(SECONDS, min_size=1, max_size=4), order=st.randoms(use_true_random=False))
def test_the_order_of_repeats_changes_no_figure(
    ran: Make, compared: Make, seconds: list[float], order: random.Random
) -> None:
    runs = [ran(num_gpus=2, seconds=second, repeat=number) for number, second in enumerate(seconds)]
    shuffled = list(runs)
    order.shuffle(shuffled)
    assert compared(*shuffled).cells == compared(*runs).cells


def rounds(ran: Make, *ratios: float, slow: tuple[float, ...] = (1.0, 1.0, 1.0), order: str = "rounds") -> list[Any]:
    """Runs on 1 and 4: in round i, 4 processes reach ratios[i] of ideal, and all is slowed by slow[i]."""
    made = [
        (ran(num_gpus=1, seconds=pace, repeat=number), ran(num_gpus=4, seconds=pace / ratio, repeat=number))
        for number, (ratio, pace) in enumerate(zip(ratios, slow, strict=False))
    ]
    if order == "rounds":
        return [run for pair in made for run in pair]
    return [one for one, _ in made] + [four for _, four in made]


def test_interleaved_repeats_are_compared_in_pairs(ran: Make, compared: Make) -> None:
    slow = (1.0, 1.3, 1.6)
    paired = compared(*rounds(ran, 0.92, 0.93, 0.94, slow=slow)).cells[1]
    assert paired.interval.method == "paired-t"
    assert paired.grade == "good"
    assert paired.interval.high - paired.interval.low < 0.06
    apart = compared(*rounds(ran, 0.92, 0.93, 0.94, slow=slow, order="sizes")).cells[1]
    assert apart.interval.method == "welch-t"
    assert apart.interval.high - apart.interval.low > 0.5
    assert apart.grade == "undecided"


@pytest.mark.parametrize(
    ("ratios", "grade"),
    [
        ((0.90, 0.91, 0.92), "good"),
        ((0.84, 0.85, 0.86), "undecided"),
        ((0.76, 0.77, 0.78), "acceptable"),
        ((0.69, 0.70, 0.71), "undecided"),
        ((0.50, 0.51, 0.52), "poor"),
    ],
)
def test_a_grade_needs_the_whole_interval(ran: Make, compared: Make, ratios: tuple[float, ...], grade: str) -> None:
    four = compared(*rounds(ran, *ratios)).cells[1]
    assert four.grade == grade
    assert four.grade_basis == "interval"
    assert four.interval.low <= four.scaling_efficiency <= four.interval.high
    assert four.noise is None


def test_one_run_has_a_grade_that_says_so_and_no_interval(ran: Make, compared: Make) -> None:
    four = compared(ran(num_gpus=1), ran(num_gpus=4)).cells[1]
    assert (four.grade, four.grade_basis, four.interval) == ("good", "one-run", None)


def test_more_processes_than_cores_leave_it_undecided(ran: Make, compared: Make) -> None:
    four = compared(ran(num_gpus=1, cpu_count=2), ran(num_gpus=4, cpu_count=2, seconds=2.0)).cells[1]
    assert (four.scaling_efficiency, four.grade, four.noise) == (0.5, "undecided", "4 processes on 2 cores")
    assert four.causes[0].kind == "crowded-machine"


def test_a_given_baseline_is_taken_as_exact_and_named(ran: Make) -> None:
    runs = [ran(num_gpus=4, seconds=seconds, repeat=number) for number, seconds in enumerate((1.0, 1.01, 0.99))]
    given_64 = Baseline(kind="given", num_gpus=1, throughput=64.0)
    comparison = build_comparison("x", runs[0][1].recipe_sha256, "weak", runs, baseline=given_64)
    four = comparison.cells[0]
    assert (four.scaling_efficiency, four.grade, four.baseline_num_gpus) == (1.0, "good", 1)
    assert four.interval is not None
    assert four.interval.method == "one-sample-t"
    assert any("the baseline is a given number, 64 per second on 1 process" in note for note in comparison.notes)


def test_laws_are_fitted_from_three_sizes_and_refused_below(ran: Make, compared: Make) -> None:
    two = compared(ran(num_gpus=1), ran(num_gpus=2))
    assert {fit.refused for fit in two.fits if fit.law == "gustafson"} == {
        "2 parameters need 3 sizes or more, and 2 could be used"
    }
    four = compared(*(ran(num_gpus=size, seconds=1 + 0.05 * (size - 1)) for size in (1, 2, 4, 8)))
    best = four.fits[1]
    assert (best.backend, best.law, best.suits, best.refused) == ("native", "latency-bandwidth", True, None)
    assert [found.num_gpus for found in best.predictions] == [16, 32]
    assert best.predictions[0].scaling_efficiency == pytest.approx(1 / 1.75)
    assert best.predictions[0].grade == "poor"
    assert document_text(four, "comparison")


def test_a_poor_cell_names_its_cause(ran: Make, compared: Make) -> None:
    def split(step: float, communication: float) -> TimeSplit:
        return TimeSplit(
            input_wait=0.0,
            compute=step - communication,
            exposed_communication=communication,
            pipeline_bubble=0.0,
            optimizer=0.0,
            straggler_wait=0.0,
            other=0.0,
        )

    runs = [ran(num_gpus=1, time_split=split(1.0, 0.0)), ran(num_gpus=4, seconds=2.0, time_split=split(2.0, 1.0))]
    four = compared(*runs).cells[1]
    assert four.grade == "poor"
    assert [cause.kind for cause in four.causes] == ["communication-bound"]
    assert four.causes[0].seconds == pytest.approx(1.0)
    assert compared(ran(num_gpus=1), ran(num_gpus=4, seconds=2.0)).cells[1].causes[0].kind == "not-recorded"
