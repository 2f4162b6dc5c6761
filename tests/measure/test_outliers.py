"""Repeats that lie far from the others."""

from __future__ import annotations

import pytest

from gradwire.measure.outliers import outliers


@pytest.mark.parametrize(
    ("rates", "far"),
    [
        ([100, 101, 99, 60], [False, False, False, True]),
        ([100, 101, 99, 160], [False, False, False, True]),
        ([100, 80, 100], [False, True, False]),
        # Spread as wide as this has no outlier.
        ([100, 130, 70, 110, 90], [False] * 5),
        # Three that agree by chance do not make a fourth, 2 % off, far away.
        ([100.0, 100.001, 100.0, 102.0], [False] * 4),
        ([100, 50], [False, False]),
        ([], []),
    ],
)
def test_far_is_by_the_stated_rule(rates: list[float], far: list[bool]) -> None:
    assert outliers(rates) == far
