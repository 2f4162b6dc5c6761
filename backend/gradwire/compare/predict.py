"""Fits the scaling laws to the runs of each backend, and grades what they predict."""

from __future__ import annotations

from collections.abc import Sequence

from gradwire.documents.comparison_schema import Fit, Prediction
from gradwire.measure import fits
from gradwire.measure.efficiency import grade
from gradwire.plan import Backend


def fits_of(
    backend: Backend,
    points: Sequence[tuple[int, float]],
    *,
    scaling: fits.Scaling,
    baseline_num_gpus: int,
    baseline_rate: float,
) -> list[Fit]:
    """Return the fit of each law to `points` (ranks, throughput), with efficiencies against the baseline."""
    each = baseline_rate / baseline_num_gpus
    return [
        Fit(
            backend=backend,
            law=fit.law,
            suits=fit.suits,
            refused=fit.refused,
            points=fit.points,
            relative_error=fit.relative_error,
            parameters={parameter.name: parameter.value for parameter in fit.parameters},
            predictions=[_prediction(found, each * found.num_gpus) for found in fit.predictions],
        )
        for fit in fits.fit_laws(points, scaling)
    ]


def _prediction(found: fits.Prediction, ideal: float) -> Prediction:
    low = grade(found.low / ideal)
    high = "good" if found.high is None else grade(found.high / ideal)
    return Prediction(
        num_gpus=found.num_gpus,
        throughput=found.throughput,
        low=found.low,
        high=found.high,
        scaling_efficiency=found.throughput / ideal,
        grade=low if low == high else "undecided",
    )
