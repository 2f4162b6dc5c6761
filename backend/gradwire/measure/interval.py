"""Confidence intervals for the ratio of two throughputs that were each measured a few times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gradwire.measure.quantiles import mean
from gradwire.measure.student import t_quantile

Method = Literal["paired-t", "welch-t", "one-sample-t"]

CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """Where a ratio lies with `confidence`, a fraction; `degrees` of freedom are those of Student's t."""

    low: float
    high: float
    confidence: float
    method: Method
    degrees: float

    @property
    def width(self) -> float:
        """high - low."""
        return self.high - self.low


def ratio_interval(actual: Sequence[float], baseline: Sequence[float], *, paired: bool) -> Interval | None:
    """Return the interval of actual / baseline; None where either was measured once only.

    Rates are above zero, so their logarithms are compared: errors that are a share of the rate become additive, and
    the interval of the difference is that of the ratio. Student's t, because a few repeats do not know their spread
    (Georges, Buytaert, Eeckhout: Statistically Rigorous Java Performance Evaluation, OOPSLA 2007).

    * paired: entry i of both was measured in the same round (A B A B), so what slows the machine in one round slows
      both and falls out of their ratio: t on the differences of pairs, len - 1 degrees of freedom.
    * else: Welch's t (Biometrika 34, 1947): the two spreads need not be equal.
    """
    mine, theirs = [math.log(rate) for rate in actual], [math.log(rate) for rate in baseline]
    if len(mine) < 2 or len(theirs) < 2:
        return None
    if paired:
        differences = [one - other for one, other in zip(mine, theirs, strict=True)]
        middle, degrees = mean(differences), len(differences) - 1.0
        error = math.sqrt(_variance(differences) / len(differences))
        return _around(middle, error, degrees, "paired-t")
    parts = [_variance(values) / len(values) for values in (mine, theirs)]
    degrees = _welch_degrees(parts, [len(mine) - 1, len(theirs) - 1])
    return _around(mean(mine) - mean(theirs), math.sqrt(sum(parts)), degrees, "welch-t")


def against_number(actual: Sequence[float], baseline: float) -> Interval | None:
    """Return the interval of actual / baseline, where the baseline is a number taken as exact; None for one repeat."""
    if len(actual) < 2:
        return None
    values = [math.log(rate / baseline) for rate in actual]
    error = math.sqrt(_variance(values) / len(values))
    return _around(mean(values), error, len(values) - 1.0, "one-sample-t")


def scaled(interval: Interval, factor: float, *, around: float) -> Interval:
    """Return `interval` times `factor`, widened where it must be to hold `around`.

    The figure that people quote is the ratio of medians, the interval is around the ratio of geometric means; an
    outlier can pull the two apart.
    """
    return Interval(
        low=min(interval.low * factor, around),
        high=max(interval.high * factor, around),
        confidence=interval.confidence,
        method=interval.method,
        degrees=interval.degrees,
    )


def _around(middle: float, error: float, degrees: float, method: Method) -> Interval:
    half = t_quantile(0.5 + CONFIDENCE / 2, degrees) * error
    # A ratio of e^700 is as good as none, and math.exp overflows just above.
    return Interval(
        low=math.exp(max(middle - half, -700.0)),
        high=math.exp(min(middle + half, 700.0)),
        confidence=CONFIDENCE,
        method=method,
        degrees=degrees,
    )


def _welch_degrees(parts: Sequence[float], degrees: Sequence[int]) -> float:
    below = sum(part**2 / count for part, count in zip(parts, degrees, strict=True))
    # Without any spread every number of degrees gives the same interval, a point.
    found = sum(parts) ** 2 / below if below > 0 else float(sum(degrees))
    # Never fewer than of the smaller sample, but for rounding.
    return max(found, float(min(degrees)))


def _variance(values: Sequence[float]) -> float:
    middle = mean(values)
    return math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1)
