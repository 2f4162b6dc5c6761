"""Means of what a rank communicated per step, from the counts of each step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gradwire.documents.measurement_schema import Traffic


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTraffic:
    """What one rank communicated in one optimizer step.

    `gradient_bytes` is the size of the gradients. `payload_bytes` is what they shrank to: the size of the plain
    all-reduce that would send as much. `wire_bytes` is what this rank sends, by each collective's bandwidth-optimal
    algorithm (2(n-1)/n of the payload), protocol headers not counted. `communication_seconds` is the time during
    which at least one collective was under way; None where torch's own code runs them.
    """

    gradient_bytes: int
    payload_bytes: int
    wire_bytes: int
    communication_seconds: float | None


def mean_traffic(steps: Sequence[StepTraffic], *, warmup_steps: int) -> Traffic | None:
    """Return the mean over the steps after the first `warmup_steps`; None where there are none."""
    timed = steps[warmup_steps:]
    if not timed:
        return None
    seconds = [step.communication_seconds for step in timed if step.communication_seconds is not None]
    return Traffic(
        gradient_bytes=_mean([step.gradient_bytes for step in timed]),
        payload_bytes=_mean([step.payload_bytes for step in timed]),
        wire_bytes=_mean([step.wire_bytes for step in timed]),
        communication_seconds=_mean(seconds) if len(seconds) == len(timed) else None,
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
