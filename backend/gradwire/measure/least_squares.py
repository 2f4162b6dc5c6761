"""Linear least squares with a few parameters, none of them below zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

_Matrix = list[list[float]]

# Smaller pivots, of columns scaled to length 1, are rounding.
_TINY = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class Solution:
    """Parameters, the residual standard error, its degrees of freedom, and the parameters' covariance."""

    parameters: tuple[float, ...]
    residual_error: float
    degrees: int
    covariance: tuple[tuple[float, ...], ...]

    def variance_of(self, row: Sequence[float]) -> float:
        """Return the variance of `row . parameters` that comes from the parameters."""
        numbers = range(len(row))
        found = math.fsum(row[one] * self.covariance[one][other] * row[other] for one in numbers for other in numbers)
        return max(found, 0.0)


def solve(rows: Sequence[Sequence[float]], targets: Sequence[float]) -> Solution | None:
    """Return the parameters x >= 0 that make `rows . x` closest to `targets`; None where the rows do not tell them.

    With k parameters there are 2^k - 1 sets of those above zero; each is solved by its normal equations, and the best
    one with none below zero is taken: exact, and for k up to 3 nothing to save. The covariance is that of all
    parameters, as if none were bounded: one that comes out as zero may yet be above it. Where the rows do not tell all
    of them apart, it is that of those above zero. There must be more rows than parameters.
    """
    count = len(rows[0])
    best: Solution | None = None
    for size in range(count, 0, -1):
        for chosen in combinations(range(count), size):
            found = _solved(rows, targets, chosen)
            if found is not None and (best is None or found.residual_error < best.residual_error):
                best = found
    if best is None or min(best.parameters) > 0:
        return best
    lengths, inverse = _normal_inverse(rows, range(count))
    if inverse is None:
        return best
    squared = best.residual_error**2
    covariance = tuple(
        tuple(squared * part / (mine * theirs) for part, theirs in zip(row, lengths, strict=True))
        for row, mine in zip(inverse, lengths, strict=True)
    )
    return replace(best, covariance=covariance)


def _normal_inverse(rows: Sequence[Sequence[float]], chosen: Sequence[int]) -> tuple[list[float], _Matrix | None]:
    """The lengths of the columns, and the inverse of the normal matrix of columns of length 1; None: there is none."""
    lengths = [math.sqrt(math.fsum(row[column] ** 2 for row in rows)) for column in chosen]
    if min(lengths) == 0:
        return lengths, None
    unit = [[row[column] / length for column, length in zip(chosen, lengths, strict=True)] for row in rows]
    numbers = range(len(chosen))
    return lengths, _inverse(
        [[math.fsum(row[one] * row[other] for row in unit) for other in numbers] for one in numbers]
    )


def _solved(rows: Sequence[Sequence[float]], targets: Sequence[float], chosen: tuple[int, ...]) -> Solution | None:
    lengths, inverse = _normal_inverse(rows, chosen)
    if inverse is None:
        return None
    unit = [[row[column] / length for column, length in zip(chosen, lengths, strict=True)] for row in rows]
    numbers = range(len(chosen))
    right = [math.fsum(row[one] * target for row, target in zip(unit, targets, strict=True)) for one in numbers]
    values = [math.fsum(inverse[one][other] * right[other] for other in numbers) for one in numbers]
    if min(values) < 0:
        return None
    residuals = [
        target - math.fsum(part * value for part, value in zip(row, values, strict=True))
        for row, target in zip(unit, targets, strict=True)
    ]
    # Of the full model, however many are zero: a bound that is met was found from the same points.
    degrees = len(rows) - len(rows[0])
    squared = math.fsum(residual**2 for residual in residuals) / degrees
    parameters = [0.0] * len(rows[0])
    covariance = [[0.0] * len(rows[0]) for _ in rows[0]]
    for one, column in enumerate(chosen):
        parameters[column] = values[one] / lengths[one]
        for other, beside in enumerate(chosen):
            covariance[column][beside] = squared * inverse[one][other] / (lengths[one] * lengths[other])
    return Solution(
        parameters=tuple(parameters),
        residual_error=math.sqrt(squared),
        degrees=degrees,
        covariance=tuple(tuple(row) for row in covariance),
    )


def _inverse(matrix: _Matrix) -> _Matrix | None:
    """Gauss and Jordan, with row exchanges; None where the matrix has none."""
    size = len(matrix)
    work = [[*row, *(float(number == column) for column in range(size))] for number, row in enumerate(matrix)]
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(work[row][column]))
        if abs(work[pivot][column]) < _TINY:
            return None
        work[column], work[pivot] = work[pivot], work[column]
        divisor = work[column][column]
        work[column] = [value / divisor for value in work[column]]
        for row in range(size):
            if row != column:
                factor = work[row][column]
                work[row] = [mine - factor * theirs for mine, theirs in zip(work[row], work[column], strict=True)]
    return [row[size:] for row in work]
