"""Writes the cost model's errors, and the link speeds below which it says that each method pays."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.netlab.configurations import PLAIN
from benchmarks.netlab.prediction import Prediction, emulated_step, fit
from benchmarks.netlab.report import aligned, place_name
from benchmarks.netlab.rows import Row
from gradwire.measure.communication_cost import MEBIBYTE, MethodCost, advise

_CAPS = (None, *(cap * MEBIBYTE for cap in (1, 2, 5, 10, 25, 100)))
_LATENCY_SECONDS = 1e-4
_TENTHS_OF_DECADE = range(70, 121)


def prediction_text(rows: Sequence[Row], *, fitted_rates: Sequence[float | None], compute_seconds: float) -> str:
    """Return the tables as markdown."""
    predictions, methods = fit(rows, fitted_rates=fitted_rates)
    head = ("place", "configuration", "measured ms", "predicted ms", "error", "")
    table = aligned([head, *(_cells(prediction) for prediction in predictions)])
    summary = [_summary("in sample", [p for p in predictions if p.fitted])]
    summary.append(_summary("held out", [p for p in predictions if not p.fitted]))
    advice = _advice(methods, compute_seconds)
    return "\n\n".join(["# Cost model beside the lab", table, *summary, "# When compression pays", advice]) + "\n"


def _cells(prediction: Prediction) -> tuple[str, ...]:
    return (
        place_name(prediction.wire.world_size, prediction.rate_mbit),
        prediction.configuration,
        f"{prediction.measured_seconds * 1000:.1f}",
        f"{prediction.predicted_seconds * 1000:.1f}",
        f"{prediction.error:+.1%}",
        "fitted" if prediction.fitted else "",
    )


def _summary(name: str, predictions: Sequence[Prediction]) -> str:
    if not predictions:
        return f"{name}: nothing measured"
    worst = max(predictions, key=lambda prediction: abs(prediction.error))
    mean = statistics.mean(abs(prediction.error) for prediction in predictions)
    place = f"{worst.configuration}, {place_name(worst.wire.world_size, worst.rate_mbit)}"
    return f"{name}: mean error {mean:.1%}, worst {worst.error:+.1%} ({place}), {len(predictions)} cases"


def _advice(methods: Sequence[MethodCost], compute_seconds: float) -> str:
    """Return for 2, 8 and 64 ranks, and for 1 and 8 micro-steps, the Mb/s below which each method beats plain DDP."""
    plain = next(method for method in methods if method.name == PLAIN)
    speeds = [10 ** (tenths / 10) / 8 for tenths in _TENTHS_OF_DECADE]
    columns = [(world, micro_steps) for world in (2, 8, 64) for micro_steps in (1, 8)]
    head = ["wins below, Mb/s", *(f"{world} ranks, {micro_steps} micro-steps" for world, micro_steps in columns)]
    others = [method for method in methods if not method.name.startswith(PLAIN)]
    cells = {method.name: [method.name] for method in others}
    for world, micro_steps in columns:
        step = emulated_step(compute_seconds).after(micro_steps - 1)
        for advice in advise(
            step, plain, others, world_size=world, latency_seconds=_LATENCY_SECONDS, caps=_CAPS, speeds=speeds
        ):
            wins = "never" if advice.wins_below is None else f"{advice.wins_below * 8 / 1e6:,.0f}"
            cells[advice.method].append(wins)
    return aligned([head, *cells.values()])
