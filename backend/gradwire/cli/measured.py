"""What one measured run looks like on the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradwire.cli.output import say, table, wrapped
from gradwire.compare.format import ABSENT, loss, memory, percent, rate, seconds

if TYPE_CHECKING:
    from gradwire.documents.measurement_schema import Measurement


def say_measurement(measurement: Measurement) -> None:
    """Print a run's figures."""
    throughput, steps, each = measurement.throughput, measurement.steps, measurement.step_seconds
    on_device = measurement.memory.peak_device_allocated_bytes
    mfu = measurement.utilization
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
                ("step", f"{seconds(each.median)} median, {seconds(each.p95)} p95"),
                (
                    "peak memory",
                    memory(measurement.memory.peak_process_bytes) + " of main memory"
                    if on_device is None
                    else memory(on_device) + " on the device",
                ),
                ("mfu", percent(mfu.mfu) if mfu.reason is None else f"{ABSENT} ({mfu.reason})"),
            ]
        )
    )
    for line in measurement.notes:
        say(wrapped(line, indent=4, first="  - "))


def _losses(measurement: Measurement) -> str:
    known = [value for value in measurement.losses if value is not None]
    if not known:
        return "not reported"
    return f"{loss(known[0])} at the first step, {loss(known[-1])} at the last (nats per token)"
