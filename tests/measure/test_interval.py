"""Intervals for ratios of throughputs, and the quantiles they rest on."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradwire.measure.interval import against_number, ratio_interval, scaled
from gradwire.measure.student import t_quantile

RATES = st.lists(st.floats(min_value=1e-3, max_value=1e6), min_size=2, max_size=6)


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    # Any table of Student's t, two-sided 95 %.
    [(1, 12.7062), (2, 4.30265), (3, 3.18245), (4, 2.77645), (10, 2.22814), (30, 2.04227), (120, 1.97993)],
)
def test_quantiles_are_those_of_the_tables(degrees: int, quantile: float) -> None:
    assert t_quantile(0.975, degrees) == pytest.approx(quantile, rel=1e-5)
    assert t_quantile(0.5, degrees) == pytest.approx(0.0, abs=1e-9)


def test_one_degree_is_the_cauchy_distribution() -> None:
    for share in (0.6, 0.9, 0.975, 0.999):
        assert t_quantile(share, 1) == pytest.approx(math.tan(math.pi * (share - 0.5)), rel=1e-9)


def test_many_degrees_come_near_the_normal_distribution() -> None:
    assert 1.95996 < t_quantile(0.975, 1e9) < 1.963


@pytest.mark.parametrize(("share", "degrees"), [(0.4, 3), (1.0, 3), (0.975, 0.5)])
def test_what_has_no_quantile_is_refused(share: float, degrees: float) -> None:
    with pytest.raises(ValueError, match="no quantile"):
        t_quantile(share, degrees)


def test_the_paired_interval_is_the_textbook_one() -> None:
    found = ratio_interval([90.0, 99.0, 84.0], [100.0, 100.0, 100.0], paired=True)
    logs = [math.log(0.9), math.log(0.99), math.log(0.84)]
    middle = sum(logs) / 3
    error = math.sqrt(sum((value - middle) ** 2 for value in logs) / 2 / 3)
    assert found is not None
    assert found.low == pytest.approx(math.exp(middle - 4.30265273 * error))
    assert found.high == pytest.approx(math.exp(middle + 4.30265273 * error))
    assert (found.method, found.degrees, found.confidence) == ("paired-t", 2, 0.95)


def test_a_slowdown_that_both_share_falls_out_of_pairs_only() -> None:
    baseline = [100.0, 50.0, 25.0]
    actual = [90.0, 45.0, 22.5]
    paired, apart = ratio_interval(actual, baseline, paired=True), ratio_interval(actual, baseline, paired=False)
    assert paired is not None and apart is not None
    assert paired.low == pytest.approx(0.9) == paired.high
    assert apart.high / apart.low > 10


def test_one_measurement_has_no_interval() -> None:
    assert ratio_interval([1.0], [1.0, 2.0], paired=False) is None
    assert ratio_interval([1.0, 2.0], [1.0], paired=False) is None
    assert against_number([1.0], 1.0) is None


@settings(deadline=None)
@given(actual=RATES, baseline=RATES, unit=st.sampled_from([0.5, 4.0, 1024.0]))
def test_the_unit_does_not_matter_and_the_middle_is_inside(
    actual: list[float], baseline: list[float], unit: float
) -> None:
    found = ratio_interval(actual, baseline, paired=False)
    again = ratio_interval([rate * unit for rate in actual], [rate * unit for rate in baseline], paired=False)
    assert found is not None and again is not None
    assert found.low == pytest.approx(again.low)
    middle = math.exp(sum(map(math.log, actual)) / len(actual) - sum(map(math.log, baseline)) / len(baseline))
    assert found.low * (1 - 1e-9) <= middle <= found.high * (1 + 1e-9)


def test_nineteen_of_twenty_intervals_hold_the_truth() -> None:
    chance = random.Random(11)
    held = 0
    for _ in range(400):
        baseline = [100 * math.exp(chance.gauss(0, 0.05)) for _ in range(4)]
        actual = [80 * math.exp(chance.gauss(0, 0.1)) for _ in range(4)]
        found = ratio_interval(actual, baseline, paired=False)
        assert found is not None
        held += found.low <= 0.8 <= found.high
    assert 0.92 <= held / 400 <= 0.98


def test_an_interval_is_widened_to_hold_the_ratio_of_medians() -> None:
    found = ratio_interval([1.0, 1.0001], [1.0, 1.0], paired=True)
    assert found is not None
    assert scaled(found, 0.5, around=0.7).high == 0.7
    assert scaled(found, 0.5, around=0.7).low == found.low * 0.5
