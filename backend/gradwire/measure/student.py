"""Quantiles of Student's t distribution, for intervals from few repeats."""

from __future__ import annotations

import math
from functools import cache

_PIECES = 400
_HALVINGS = 60
# Beyond, the quantiles change in the third digit only, and the density is too narrow for so few pieces.
_MOST_DEGREES = 1000.0


@cache
def t_quantile(share: float, degrees: float) -> float:
    """Return the value below which `share` (0.5..1, without 1) of Student's t with `degrees` (at least 1) lies.

    `degrees` need not be whole: Welch's are not. With t = sqrt(degrees) tan(angle) the density is
    cos(angle)^(degrees-1), which Simpson's rule integrates; the quantile is found by halving. More
    than 1000 degrees count as 1000. Raises ValueError outside those ranges.
    """
    if not 0.5 <= share < 1 or degrees < 1:
        raise ValueError(f"no quantile for a share of {share} with {degrees} degrees of freedom")
    degrees = min(degrees, _MOST_DEGREES)
    low, high = 0.0, math.pi / 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _share_below(middle, degrees) < share:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees) * math.tan((low + high) / 2)


def _share_below(angle: float, degrees: float) -> float:
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(math.pi)
    width = angle / _PIECES
    heights = [math.pow(math.cos(number * width), degrees - 1) for number in range(_PIECES + 1)]
    inner = 4 * math.fsum(heights[1:-1:2]) + 2 * math.fsum(heights[2:-1:2])
    return 0.5 + scale * (heights[0] + inner + heights[-1]) * width / 3
