"""What one measured run looks like on the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradwire.cli.output import say, table, wrapped
from gradwire.compare.format import ABSENT, loss, memory, percent, rate, seconds

if TYPE_CHECKING:
    from gradwire.documents.measurement_schema import Bubble, Measurement, MicroStepSeconds, StepSeconds, Utilization


def say_measurement(measurement: Measurement) -> None:
    """Print a run's figures."""
    throughput, steps = measurement.throughput, measurement.steps
    micro = measurement.micro_step_seconds
    bubble = measurement.bubble
    on_device = measurement.memory.peak_device_allocated_bytes
    say(
        table(
            [
                ("steps", f"{steps.trained} trained, {steps.timed} timed after {steps.warmup} of warm-up"),
                ("loss", _losses(measurement)),
                (
                    "tokens/s",
                    f"{rate(throughput.tokens_per_second)} in all, "
                    f"{rate(throughput.tokens_per_second_per_rank)} per rank",
                ),
                ("samples/s", f"{rate(throughput.samples_per_second)} in all"),
                ("step", _times(measurement.step_seconds)),
                *([] if micro is None else [("micro-step", _times(micro))]),
                *([] if bubble is None else [("bubble", _bubble(bubble))]),
                (
                    "peak memory",
                    memory(measurement.memory.peak_process_bytes) + " of main memory"
                    if on_device is None
                    else memory(on_device) + " on the device",
                ),
                ("mfu", _utilization(measurement.utilization)),
            ]
        )
    )
    for line in measurement.notes:
        say(wrapped(line, indent=4, first="  - "))


def _bubble(found: Bubble) -> str:
    formula = f"{percent(found.by_formula)} by the formula for equal stages"
    return formula if found.measured is None else f"{percent(found.measured)} of the step measured, {formula}"


def _times(found: StepSeconds | MicroStepSeconds) -> str:
    return (
        f"{seconds(found.median)} median, {seconds(found.p95)} p95, {seconds(found.maximum)} max, "
        f"{seconds(found.rank_spread)} between ranks"
    )


def _utilization(found: Utilization) -> str:
    if found.reason is not None:
        return f"{ABSENT} ({found.reason})"
    kind = {"measured": "measured", "given": "given"}.get(found.peak_kind or "", "data sheet's")
    hardware = "" if found.hfu in (found.mfu, None) else f" ({percent(found.hfu)} with what is recomputed)"
    return f"{percent(found.mfu)}{hardware} of the {kind} peak, {(found.peak_flops_per_second or 0) / 1e12:.4g} TFLOP/s"


def _losses(measurement: Measurement) -> str:
    known = [value for value in measurement.losses if value is not None]
    if not known:
        return "not reported"
    return f"{loss(known[0])} at the first step, {loss(known[-1])} at the last (nats per token)"
