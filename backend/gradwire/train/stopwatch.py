"""Reads off what each part of a step took, without waiting for the device within the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch

Part = Literal["input_wait", "passes", "pipeline_bubble", "optimizer"]
Lap = Callable[[Part], None]
"""Gives the time since the last call, or since the step began, to a part of the step."""


class Stopwatch:
    """Laps of one rank, step by step.

    On a CUDA device a lap is an event in the stream that computes, so it ends when the device gets there; the time
    between two events holds the device's waits. Events are read when the step has been waited for anyway.
    """

    def __init__(self, device: Any, clock: Callable[[], float]) -> None:
        self._is_cuda = device.type == "cuda"
        self._clock = clock
        self._laps: list[tuple[Part, Any]] = []
        self._began: Any = None

    def begin(self) -> None:
        """Begin a step."""
        self._laps.clear()
        self._began = self._read()

    def lap(self, part: Part) -> None:
        """Give the time since the last lap to `part`; see Lap."""
        self._laps.append((part, self._read()))

    def seconds(self) -> dict[Part, float]:
        """Return the seconds of each part in the step that ended; the device must have finished it."""
        total: dict[Part, float] = {"input_wait": 0.0, "passes": 0.0, "pipeline_bubble": 0.0, "optimizer": 0.0}
        before = self._began
        for part, reading in self._laps:
            total[part] += self._between(before, reading)
            before = reading
        return total

    def laps(self, part: Part) -> list[float]:
        """Return the seconds of each lap that `part` was given, in order; the device must have finished the step."""
        found = []
        before = self._began
        for name, reading in self._laps:
            if name == part:
                found.append(self._between(before, reading))
            before = reading
        return found

    def _between(self, before: Any, reading: Any) -> float:
        # A clock that was put back lets no time pass here, as in the meter, which leaves the step out.
        return max(0.0, float(before.elapsed_time(reading) / 1000 if self._is_cuda else reading - before))

    def _read(self) -> Any:
        if not self._is_cuda:
            return self._clock()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event
