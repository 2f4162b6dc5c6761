"""Medians and percentiles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradwire.measure.quantiles import median, quantile

VALUES = st.lists(st.floats(0, 1e6), min_size=1, max_size=50)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1.0), (0.25, 1.75), (0.5, 2.5), (0.95, 3.85), (1.0, 4.0)])
def test_quantiles_are_interpolated_linearly(share: float, expected: float) -> None:
    assert quantile([4.0, 1.0, 3.0, 2.0], share) == pytest.approx(expected, rel=1e-15)


def test_the_median_of_an_odd_number_is_one_of_them() -> None:
    assert median([9.0, 1.0, 4.0]) == 4.0


def test_one_value_is_every_quantile() -> None:
    assert quantile([7.0], 0.95) == 7.0


def test_no_values_have_no_quantile() -> None:
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)


@given(values=VALUES, share=st.floats(0, 1))
def test_a_quantile_lies_between_the_extremes(values: list[float], share: float) -> None:
    assert min(values) <= quantile(values, share) <= max(values)
