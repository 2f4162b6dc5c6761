"""Marks the repeats that lie far from the others; they stay in every figure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradwire.measure.quantiles import median

OUTLIER_RULE = (
    "more than 3.5 robust standard deviations and more than 5 % off its cell's median, three repeats at least"
)

# Iglewicz and Hoaglin: How to Detect and Handle Outliers, 1993, the modified z-score.
_DEVIATIONS = 3.5
_TO_DEVIATIONS = 1.4826
# Of three repeats two can agree to four digits by chance, which makes the third look far away.
_AT_LEAST = math.log(1.05)
_FEWEST = 3


def outliers(rates: Sequence[float]) -> list[bool]:
    """Return for each of `rates` (all above zero) whether it is an outlier by OUTLIER_RULE.

    Distances are between logarithms; a robust standard deviation is 1.4826 x their median.
    """
    if len(rates) < _FEWEST:
        return [False] * len(rates)
    logarithms = [math.log(rate) for rate in rates]
    middle = median(logarithms)
    distances = [abs(value - middle) for value in logarithms]
    deviation = _TO_DEVIATIONS * median(distances)
    return [distance > max(_DEVIATIONS * deviation, _AT_LEAST) for distance in distances]
