"""Means, and medians and percentiles by linear interpolation."""

from __future__ import annotations

import math
from collections.abc import Sequence


def mean(values: Sequence[float]) -> float:
    """Return the mean of `values`, rounded once; raises ZeroDivisionError without any."""
    return math.fsum(values) / len(values)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` (0..1) of `values` lie, interpolated between its two neighbours.

    The definition is Hyndman and Fan's seventh, numpy's default. Raises ValueError without values.
    """
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = min(int(place), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def median(values: Sequence[float]) -> float:
    """Return the middle of `values`; between the two middle ones for an even number of them."""
    return quantile(values, 0.5)
