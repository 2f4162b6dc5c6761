"""Fits scaling laws to measured throughputs and predicts larger sizes, with the error of the fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from gradwire.measure.least_squares import Solution, solve
from gradwire.measure.student import t_quantile

Law = Literal["amdahl", "gustafson", "latency-bandwidth"]
Scaling = Literal["weak", "strong"]

_SURE = 0.975
# Twice and four times the largest measured size.
_FACTORS = (2, 4)


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """A fitted number: a fraction, named for what it is a share of."""

    name: str
    value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """Throughput at a size that was not measured, with its 95 % prediction interval; `high` None: not bounded."""

    num_gpus: int
    throughput: float
    low: float
    high: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """A law fitted to points, or why it was not (`refused`, with empty parameters and predictions).

    `relative_error` is the residual standard error as a fraction of the throughput. `suits`: the law speaks of this
    kind of scaling, Amdahl's of a fixed problem (strong), Gustafson's of a fixed share per GPU (weak).
    """

    law: Law
    suits: bool
    refused: str | None
    points: int
    relative_error: float | None
    parameters: tuple[Parameter, ...]
    predictions: tuple[Prediction, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Law:
    """A law that is linear in its parameters: `basis(n) . parameters` is `target(n, throughput)`."""

    suited: frozenset[Scaling]
    basis: Callable[[int, Scaling], list[float]]
    target: Callable[[int, float, Scaling], float]
    throughput: Callable[[int, float, Scaling], float]
    named: Callable[[Sequence[float], int, Scaling], tuple[Parameter, ...]]
    target_falls: bool


def fit_laws(points: Sequence[tuple[int, float]], scaling: Scaling) -> list[Fit]:
    """Return the fit of each law to `points` (GPUs, throughput; repeats are points of their own), suited laws first.

    * Amdahl (AFIPS 1967): throughput X1 / (s + (1 - s) / n), s being the serial share of one GPU's time.
    * Gustafson (CACM 31, 1988): throughput X1 (s + (1 - s) n).
    * latency-bandwidth: a step takes compute + 2 (n - 1) latency + 2 (n - 1) / n x bytes / bandwidth, the cost of a
      ring all-reduce (Thakur, Rabenseifner, Gropp: IJHPCA 19, 2005; Patarasuk, Yuan: JPDC 69, 2009); under strong
      scaling compute is divided by n.

    Each is linear in its parameters, which are none below zero, and is fitted by least squares of the relative
    residuals. A law with k parameters is refused with fewer than k + 1 distinct sizes: it would pass through every
    point and have no error to show.
    """
    fits = [_fit(name, law, points, scaling) for name, law in _LAWS.items()]
    return sorted(fits, key=lambda fit: not fit.suits)


def _fit(name: Law, law: _Law, points: Sequence[tuple[int, float]], scaling: Scaling) -> Fit:
    sizes = sorted({size for size, _ in points})
    parameters = len(law.basis(2, scaling))
    if len(sizes) < parameters + 1:
        return _refusal(
            name,
            law,
            scaling,
            len(points),
            f"{parameters} parameters need {parameters + 1} sizes or more, and {len(sizes)} could be used",
        )
    targets = [law.target(size, rate, scaling) for size, rate in points]
    rows = [
        [part / target for part in law.basis(size, scaling)] for (size, _), target in zip(points, targets, strict=True)
    ]
    solution = solve(rows, [1.0] * len(rows))
    if solution is None:
        return _refusal(name, law, scaling, len(points), "the measured sizes do not tell its parameters apart")
    return Fit(
        law=name,
        suits=scaling in law.suited,
        refused=None,
        points=len(points),
        relative_error=solution.residual_error,
        parameters=law.named(solution.parameters, sizes[-1], scaling),
        predictions=tuple(_predict(law, solution, factor * sizes[-1], scaling) for factor in _FACTORS),
    )


def _refusal(name: Law, law: _Law, scaling: Scaling, points: int, reason: str) -> Fit:
    return Fit(
        law=name,
        suits=scaling in law.suited,
        refused=reason,
        points=points,
        relative_error=None,
        parameters=(),
        predictions=(),
    )


def _predict(law: _Law, solution: Solution, size: int, scaling: Scaling) -> Prediction:
    basis = law.basis(size, scaling)
    middle = math.fsum(part * value for part, value in zip(basis, solution.parameters, strict=True))
    # The scatter of one more run, a share of what it measures, and what the parameters may be off.
    spread = math.sqrt((solution.residual_error * middle) ** 2 + solution.variance_of(basis))
    half = t_quantile(_SURE, solution.degrees) * spread
    ends = [law.throughput(size, target, scaling) if target > 0 else None for target in (middle - half, middle + half)]
    low, high = reversed(ends) if law.target_falls else ends
    return Prediction(
        num_gpus=size, throughput=law.throughput(size, middle, scaling), low=low if low is not None else 0.0, high=high
    )


def _ring(size: int) -> list[float]:
    return [2.0 * (size - 1), 2.0 * (size - 1) / size]


def _serial(values: Sequence[float], _size: int, _scaling: Scaling) -> tuple[Parameter, ...]:
    return (Parameter(name="serial_share", value=values[0] / sum(values)),)


def _step_shares(values: Sequence[float], size: int, scaling: Scaling) -> tuple[Parameter, ...]:
    """The parts of a step at the largest measured size."""
    parts = [part * value for part, value in zip(_ring_basis(size, scaling), values, strict=True)]
    whole = sum(parts)
    names = ("compute_share", "latency_share", "bandwidth_share")
    return tuple(Parameter(name=name, value=part / whole) for name, part in zip(names, parts, strict=True))


def _ring_basis(size: int, scaling: Scaling) -> list[float]:
    return [1.0 if scaling == "weak" else 1 / size, *_ring(size)]


def _step_time(size: int, throughput: float, scaling: Scaling) -> float:
    """Seconds of a step that does one unit of work on each GPU (weak) or on all together (strong)."""
    return size / throughput if scaling == "weak" else 1 / throughput


_LAWS: dict[Law, _Law] = {
    "amdahl": _Law(
        suited=frozenset({"strong"}),
        basis=lambda size, _: [1.0, 1 / size],
        target=lambda _size, throughput, _scaling: 1 / throughput,
        throughput=lambda _size, target, _scaling: 1 / target,
        named=_serial,
        target_falls=True,
    ),
    "gustafson": _Law(
        suited=frozenset({"weak"}),
        basis=lambda size, _: [1.0, float(size)],
        target=lambda _size, throughput, _scaling: throughput,
        throughput=lambda _size, target, _scaling: target,
        named=_serial,
        target_falls=False,
    ),
    "latency-bandwidth": _Law(
        suited=frozenset({"weak", "strong"}),
        basis=_ring_basis,
        target=_step_time,
        # Its own inverse: throughput and step time multiply to the work.
        throughput=_step_time,
        named=_step_shares,
        target_falls=True,
    ),
}
