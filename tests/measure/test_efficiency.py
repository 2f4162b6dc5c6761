"""Scaling efficiency and its grade."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradwire.errors import UsageError
from gradwire.measure.efficiency import grade, scaling_efficiency

THROUGHPUTS = st.floats(min_value=1e-6, max_value=1e12)


def test_nine_tenths_of_ideal_is_good() -> None:
    assert scaling_efficiency(100, 8, 720) == (0.9, "good")


@pytest.mark.parametrize(
    ("actual", "efficiency", "called"),
    [
        (681, 0.85125, "good"),
        (680, 0.85, "acceptable"),
        (560, 0.70, "acceptable"),
        (559, 0.69875, "poor"),
        (800, 1.0, "good"),
        (880, 1.1, "good"),
    ],
)
def test_the_boundaries_belong_to_acceptable(actual: float, efficiency: float, called: str) -> None:
    assert scaling_efficiency(100, 8, actual) == (efficiency, called)


@given(baseline=THROUGHPUTS, n_gpus=st.integers(1, 10_000), boundary=st.sampled_from([0.85, 0.70]))
def test_dust_of_a_division_does_not_move_a_boundary(baseline: float, n_gpus: int, boundary: float) -> None:
    assert scaling_efficiency(baseline, n_gpus, baseline * boundary * n_gpus).grade == "acceptable"


@pytest.mark.parametrize("efficiency", [0.85 + 1e-16, 0.85 - 1e-16, 0.7 - 1e-16, 0.1 * 7, 1 - 0.3, 1.7 / 2])
def test_dust_in_an_efficiency_does_not_move_a_boundary(efficiency: float) -> None:
    assert grade(efficiency) == "acceptable"


@given(baseline=THROUGHPUTS, n_gpus=st.integers(1, 4096))
def test_ideal_scaling_is_one(baseline: float, n_gpus: int) -> None:
    assert math.isclose(scaling_efficiency(baseline, n_gpus, baseline * n_gpus).scaling_efficiency, 1.0)


@given(baseline=THROUGHPUTS, actual=THROUGHPUTS, smallest=st.integers(1, 64), factor=st.integers(1, 64))
def test_a_baseline_on_several_gpus_counts_as_that_many(
    baseline: float, actual: float, smallest: int, factor: int
) -> None:
    against_several = scaling_efficiency(baseline, smallest * factor, actual, baseline_n_gpus=smallest)
    assert against_several == scaling_efficiency(baseline, factor, actual)


@given(baseline=THROUGHPUTS, actual=THROUGHPUTS, n_gpus=st.integers(1, 1000), unit=st.sampled_from([0.25, 2.0, 1024.0]))
def test_the_unit_of_throughput_does_not_matter(baseline: float, actual: float, n_gpus: int, unit: float) -> None:
    assert scaling_efficiency(baseline * unit, n_gpus, actual * unit) == scaling_efficiency(baseline, n_gpus, actual)


@pytest.mark.parametrize("bad", [0, 0.0, -1, math.nan, math.inf, -math.inf, None, "many"])
def test_a_throughput_that_is_no_number_above_zero_is_refused(bad: float) -> None:
    with pytest.raises(UsageError, match="baseline throughput must be"):
        scaling_efficiency(bad, 8, 720)
    with pytest.raises(UsageError, match="actual throughput must be"):
        scaling_efficiency(100, 8, bad)


@pytest.mark.parametrize("bad", [0, -1, 1.5, 2.0, math.nan, None, "8"])
def test_a_number_of_gpus_that_is_no_count_is_refused(bad: int) -> None:
    with pytest.raises(UsageError, match="number of GPUs must be"):
        scaling_efficiency(100, bad, 720)
    with pytest.raises(UsageError, match="baseline number of GPUs must be"):
        scaling_efficiency(100, 8, 720, baseline_n_gpus=bad)


def test_throughputs_too_far_apart_are_refused() -> None:
    with pytest.raises(UsageError, match="too far apart"):
        scaling_efficiency(1e-300, 1, 1e300)


@pytest.mark.parametrize("bad", [-0.1, math.nan, math.inf])
def test_a_share_that_is_none_has_no_grade(bad: float) -> None:
    with pytest.raises(UsageError, match="share of ideal"):
        grade(bad)
