"""Holds runs of one recipe on several backends against each other, step by step, and finds where they first differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from gradwire.documents.measurement_schema import Measurement
from gradwire.documents.parity_schema import Difference, Pairing, Parity, ParityRun, Quantity, Tolerances
from gradwire.documents.plan_schema import World

Name = Literal["sequences", "labels", "text", "learning_rate", "loss", "gradient_norm"]
Series = Sequence[float | None]
Verdict = Literal["same", "differs", "incomplete"]

# Beyond this, rounding alone does not explain ten steps of a small model; measured on DDP, FSDP2 and ZeRO 0 to 3.
_FULL_PRECISION = Tolerances(loss=1e-4, gradient_norm=1e-3, learning_rate=1e-9)
# Autocast rounds operation by operation, DeepSpeed and fully_shard cast whole modules.
_HALF_PRECISION = Tolerances(loss=1e-2, gradient_norm=5e-2, learning_rate=1e-9)


def default_tolerances(precision: str) -> Tolerances:
    """Return what the recipe's `training.precision` allows two right implementations to differ by."""
    return _FULL_PRECISION if precision == "fp32" else _HALF_PRECISION


def build_parity(
    *,
    recipe_name: str,
    recipe_sha256: str,
    world: World,
    steps: int,
    tolerances: Tolerances,
    runs: Sequence[ParityRun],
    measurements: Mapping[str, Measurement],
) -> Parity:
    """Return the document of `runs`, the first measured one being the reference.

    `measurements` has that of each run with status ok, by backend. Raises ValueError where no run is left.
    """
    present = [run for run in runs if run.status != "left-out"]
    if not present:
        raise ValueError("no run to compare")
    reference = next((run for run in present if run.backend in measurements), present[0])
    pairings = [
        compare_runs(measurements[reference.backend], measurements[run.backend], tolerances)
        for run in present
        if run is not reference and {run.backend, reference.backend} <= measurements.keys()
    ]
    verdict: Verdict = "same"
    if any(run.status == "failed" for run in runs):
        verdict = "incomplete"
    if not all(pairing.is_same for pairing in pairings):
        verdict = "differs"
    return Parity(
        format_version=1,
        recipe_name=recipe_name,
        recipe_sha256=recipe_sha256,
        world=world,
        steps=steps,
        reference=reference.backend,
        tolerances=tolerances,
        runs=list(runs),
        comparisons=pairings,
        verdict=verdict,
    )


def compare_runs(reference: Measurement, run: Measurement, tolerances: Tolerances) -> Pairing:
    """Return `run` held against `reference`, every quantity in every step."""
    quantities = [
        _compare(name, expected, found, tolerance, scale=scale)
        for name, expected, found, tolerance, scale in _series(reference, run, tolerances)
    ]
    found = [quantity.first_difference for quantity in quantities if quantity.first_difference]
    # Where several differ first in one step, the one that comes first causes the others.
    first = min(found, key=lambda difference: difference.step, default=None)
    return Pairing(
        backend=run.backend,
        is_same=first is None,
        first_difference=first,
        points_to=None if first is None else _points_to(first, {each.quantity: each.step for each in found}),
        quantities=quantities,
    )


def _series(
    reference: Measurement, run: Measurement, tolerances: Tolerances
) -> Iterator[tuple[Name, Series, Series, float, float | None]]:
    """Yield each quantity with both series, in the order of cause: name, reference's, run's, tolerance, scale."""
    mine, theirs = reference.batches, run.batches
    yield "sequences", mine.sequences if mine else (), theirs.sequences if theirs else (), 0.0, None
    yield "labels", mine.labels if mine else (), theirs.labels if theirs else (), 0.0, None
    yield "text", mine.text_checksums if mine else (), theirs.text_checksums if theirs else (), 0.0, None
    largest = max(reference.learning_rates, default=0.0)
    yield "learning_rate", reference.learning_rates, run.learning_rates, tolerances.learning_rate, largest
    yield "loss", reference.losses, run.losses, tolerances.loss, None
    yield "gradient_norm", reference.gradient_norms, run.gradient_norms, tolerances.gradient_norm, None


def _compare(name: Name, reference: Series, found: Series, tolerance: float, *, scale: float | None) -> Quantity:
    """Return one quantity compared; a difference is over `scale`, or over the larger value where that is None."""
    if not _is_recorded(reference) or not _is_recorded(found):
        return Quantity(name=name, is_same=None, largest_difference=None, first_difference=None)
    first, largest = None, None
    for index in range(max(len(reference), len(found))):
        expected, value = _at(reference, index), _at(found, index)
        relative = _relative(expected, value, scale)
        if relative is not None:
            largest = relative if largest is None else max(largest, relative)
        missing = relative is None and expected != value
        if first is None and (missing or (relative is not None and relative > tolerance)):
            first = Difference(
                quantity=name,
                step=index + 1,
                reference=expected,
                found=value,
                relative_difference=relative,
                tolerance=tolerance,
            )
    return Quantity(name=name, is_same=first is None, largest_difference=largest, first_difference=first)


def _is_recorded(series: Series) -> bool:
    return any(value is not None for value in series)


def _at(series: Series, index: int) -> float | None:
    return series[index] if index < len(series) else None


def _relative(expected: float | None, value: float | None, scale: float | None) -> float | None:
    if expected is None or value is None:
        return None
    over = max(abs(expected), abs(value)) if scale is None else scale
    return abs(expected - value) / over if over else float(expected != value)


def _points_to(first: Difference, steps: Mapping[str, int]) -> str:
    match first.quantity:
        case "sequences" | "labels":
            return "batch size, accumulation or sharding of the data: the step is not taken over the same batch"
        case "text":
            return "the text or the order of its samples"
        case "learning_rate":
            return "the scheduler: warm-up, what counts as a step, or where the fall ends"
        case "loss" if first.step == 1:
            return (
                "what is there before the first update: weights, precision, attention kernel, or how a loss is averaged"
            )
        case "loss" if steps.get("gradient_norm", first.step) >= first.step:
            return (
                f"the update of step {first.step - 1}, whose gradient was the same: clipping, optimizer, weight decay, "
                "or the number format of weights and optimizer state; later on also rounding that has grown"
            )
        case "loss":
            return "the gradients of an earlier step"
        case "gradient_norm":
            return (
                "gradients of the same loss: how they are averaged over ranks and micro-steps, or the number format in "
                "which they are added up or travel"
            )
