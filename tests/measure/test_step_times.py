"""Steps and micro-steps in figures, and how far the ranks are apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gradwire.measure.step_times import micro_step_times, step_times

Make = Callable[..., Any]


def test_the_spread_is_between_the_ranks_own_medians() -> None:
    times = step_times([[9.0, 1.0, 2.0, 3.0], [9.0, 1.0, 1.0, 9.0], [0.0, 4.0, 4.0, 4.0]], timed=[1, 2, 3])
    assert times.each == [9.0, 4.0, 4.0, 9.0]
    assert times.rank_spread == 4.0 - 1.0


def test_one_rank_has_no_spread() -> None:
    assert step_times([[1.0, 2.0]], timed=[0, 1]).rank_spread == 0.0


def test_without_a_timed_step_there_is_no_figure() -> None:
    times = step_times([[1.0, 2.0]], timed=[])
    assert (times.median, times.p95, times.maximum, times.rank_spread) == (None, None, None, None)


def test_micro_steps_are_taken_together_and_their_spread_is_between_ranks() -> None:
    times = micro_step_times([[1.0, 2.0, 3.0, 4.0], [2.0, 2.0, 2.0, 10.0]])
    assert times is not None
    assert (times.median, times.maximum, times.count) == (2.0, 10.0, 8)
    assert times.p95 == pytest.approx(7.9)
    assert times.rank_spread == 2.5 - 2.0


@pytest.mark.parametrize("ranks", [[], [[]], [[1.0], []]])
def test_where_a_rank_recorded_no_micro_step_there_is_no_figure(ranks: list[list[float]]) -> None:
    assert micro_step_times(ranks) is None


def test_a_measurement_keeps_steps_and_micro_steps_apart(plan: Make, record: Make, measure: Make) -> None:
    accumulated = plan(warmup_steps=0, gradient_accumulation=2)
    measurement = measure(
        accumulated,
        [record([4.0, 4.0], samples=8, tokens=128)] * 2,
        micro_steps=[[1.0, 2.0, 1.0, 2.0], [1.5, 1.5, 1.5, 1.5]],
    )
    assert measurement.step_seconds.median == 4.0
    assert measurement.micro_step_seconds.median == 1.5
    assert measurement.micro_step_seconds.count == 8
