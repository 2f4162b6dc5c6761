"""Means of what a rank communicated per step, from the counts of each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradwire.documents.measurement_schema import Traffic
from gradwire.measure.quantiles import mean


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTraffic:
    """What one rank communicated in one optimizer step.

    `gradient_bytes` is the size of the gradients. `payload_bytes` is what they shrank to: the size of the plain
    all-reduce that would send as much. `wire_bytes` is what this rank sends, by each collective's bandwidth-optimal
    algorithm (2(n-1)/n of the payload), protocol headers not counted. `communication_seconds` is the time during
    which at least one collective was under way, or, where torch's own code runs them, from the first one's start to
    the last one's end. `exposed_seconds` is the part after the last gradient was ready. None: not known.
    """

    gradient_bytes: int
    payload_bytes: int
    wire_bytes: int
    communication_seconds: float | None
    exposed_seconds: float | None = None


def mean_traffic(steps: Sequence[StepTraffic], *, timed: Sequence[int]) -> Traffic | None:
    """Return the mean over the `timed` ones of `steps`, counted from 0; None where nobody counted, or none is timed.

    Seconds are the means of those steps that have them.
    """
    if not steps or not timed:
        return None
    counted = [steps[step] for step in timed]
    communication = _mean_of_known([step.communication_seconds for step in counted])
    exposed = _mean_of_known([step.exposed_seconds for step in counted])
    return Traffic(
        gradient_bytes=mean([step.gradient_bytes for step in counted]),
        payload_bytes=mean([step.payload_bytes for step in counted]),
        wire_bytes=mean([step.wire_bytes for step in counted]),
        communication_seconds=communication,
        exposed_seconds=exposed,
        overlap_fraction=None if exposed is None or not communication else max(0.0, 1 - exposed / communication),
    )


def _mean_of_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if known else None
