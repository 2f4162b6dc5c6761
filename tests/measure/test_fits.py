"""Scaling laws fitted to throughputs."""

from __future__ import annotations

import random

import pytest

from gradwire.measure.fits import Fit, Law, Scaling, fit_laws
from gradwire.measure.least_squares import solve


def fitted(points: list[tuple[int, float]], scaling: Scaling, law: Law) -> Fit:
    (found,) = [fit for fit in fit_laws(points, scaling) if fit.law == law]
    return found


def value(fit: Fit, name: str) -> float:
    (found,) = [parameter.value for parameter in fit.parameters if parameter.name == name]
    return found


def test_amdahls_serial_share_is_found_again() -> None:
    fit = fitted([(n, 100 / (0.05 + 0.95 / n)) for n in (1, 2, 4, 8)], "strong", "amdahl")
    assert value(fit, "serial_share") == pytest.approx(0.05)
    assert fit.relative_error == pytest.approx(0, abs=1e-9)
    assert [(found.num_gpus, found.throughput) for found in fit.predictions] == [
        (16, pytest.approx(100 / (0.05 + 0.95 / 16))),
        (32, pytest.approx(100 / (0.05 + 0.95 / 32))),
    ]


def test_gustafsons_serial_share_is_found_again() -> None:
    fit = fitted([(n, 100 * (0.1 + 0.9 * n)) for n in (1, 2, 8)], "weak", "gustafson")
    assert value(fit, "serial_share") == pytest.approx(0.1)
    assert fit.predictions[1].throughput == pytest.approx(100 * (0.1 + 0.9 * 32))


@pytest.mark.parametrize("scaling", ["weak", "strong"])
def test_latency_and_bandwidth_are_told_apart(scaling: Scaling) -> None:
    def throughput(n: int) -> float:
        compute, work = (1.0, n) if scaling == "weak" else (1 / n, 1)
        return work / (compute + 0.002 * 2 * (n - 1) + 0.1 * 2 * (n - 1) / n)

    fit = fitted([(n, throughput(n)) for n in (1, 2, 4, 8, 16)], scaling, "latency-bandwidth")
    step = (1.0 if scaling == "weak" else 1 / 16) + 0.06 + 0.1875
    assert value(fit, "latency_share") == pytest.approx(0.06 / step)
    assert value(fit, "bandwidth_share") == pytest.approx(0.1875 / step)
    assert fit.predictions[0].throughput == pytest.approx(throughput(32))


def test_the_law_that_suits_comes_first() -> None:
    points = [(n, 10.0 * n) for n in (1, 2, 4, 8)]
    assert [(fit.law, fit.suits) for fit in fit_laws(points, "weak")] == [
        ("gustafson", True),
        ("latency-bandwidth", True),
        ("amdahl", False),
    ]
    assert [fit.law for fit in fit_laws(points, "strong") if fit.suits] == ["amdahl", "latency-bandwidth"]


def test_a_law_that_would_pass_through_every_point_is_refused() -> None:
    repeats = [(n, 10.0 * n) for n in (1, 2) for _ in range(5)]
    assert {fit.law: fit.refused for fit in fit_laws(repeats, "weak")} == {
        "amdahl": "2 parameters need 3 sizes or more, and 2 could be used",
        "gustafson": "2 parameters need 3 sizes or more, and 2 could be used",
        "latency-bandwidth": "3 parameters need 4 sizes or more, and 2 could be used",
    }
    assert fitted([(1, 1.0), (2, 2.0), (4, 4.0)], "weak", "latency-bandwidth").refused is not None
    assert fitted([(3, 1.0)], "weak", "gustafson").refused is not None


def test_more_than_ideal_is_no_negative_cost() -> None:
    fit = fitted([(1, 10.0), (2, 22.0), (4, 46.0), (8, 95.0)], "weak", "latency-bandwidth")
    assert (value(fit, "latency_share"), value(fit, "bandwidth_share")) == (0.0, 0.0)
    assert fit.relative_error is not None
    assert fit.relative_error > 0.05


def test_nineteen_of_twenty_predictions_hold_the_next_run() -> None:
    chance, held = random.Random(5), 0
    for _ in range(200):
        points = [(n, 100 * (0.1 + 0.9 * n) * chance.gauss(1, 0.03)) for n in (1, 2, 4, 8) for _ in range(2)]
        found = fitted(points, "weak", "gustafson").predictions[0]
        next_run = 100 * (0.1 + 0.9 * 16) * chance.gauss(1, 0.03)
        held += found.low <= next_run and (found.high is None or next_run <= found.high)
    assert held / 200 > 0.88


def test_a_latency_too_small_to_be_found_is_not_taken_for_none() -> None:
    """Half the fits put it at zero, and at four times the size it is a tenth of the step: the intervals know."""

    def throughput(n: int) -> float:
        return n / (1 + 0.004 * (n - 1) + 0.1 * (n - 1) / n)

    chance, held = random.Random(3), 0
    for _ in range(120):
        points = [(n, throughput(n) * chance.gauss(1, 0.02)) for n in (1, 2, 4, 8) for _ in range(3)]
        found = fitted(points, "weak", "latency-bandwidth").predictions[1]
        held += found.low <= throughput(32) and (found.high is None or throughput(32) <= found.high)
    assert held / 120 > 0.92


def test_least_squares_agree_with_the_closed_form_of_a_line() -> None:
    xs, ys = [1.0, 2.0, 3.0, 4.0], [2.1, 3.9, 6.2, 7.8]
    solution = solve([[1.0, x] for x in xs], ys)
    assert solution is not None
    slope = sum((x - 2.5) * (y - 5.0) for x, y in zip(xs, ys, strict=True)) / 5.0
    assert solution.parameters == pytest.approx((5.0 - 2.5 * slope, slope))
    squared = sum((y - (5.0 - 2.5 * slope) - slope * x) ** 2 for x, y in zip(xs, ys, strict=True)) / 2
    assert solution.residual_error == pytest.approx(squared**0.5)
    assert solution.covariance[1][1] == pytest.approx(squared / 5.0)
    assert solution.degrees == 2


def test_rows_that_tell_nothing_apart_give_the_best_of_less() -> None:
    solution = solve([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]], [1.0, 2.0, 3.0])
    assert solution is not None
    assert sum(solution.parameters) == pytest.approx(1.0)
    assert solve([[0.0], [0.0]], [1.0, 1.0]) is None
