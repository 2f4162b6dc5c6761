"""The throughput meter: turns the caller's clock readings and counts into one rank's record."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import SupportsIndex

from gradwire.errors import UsageError
from gradwire.measure.measurement import RankRecord


class ThroughputMeter:
    """Times optimizer steps by a clock that the caller supplies, and counts the work in them.

        meter = ThroughputMeter(clock=time.perf_counter, warmup_steps=3)
        meter.start()
        for batch in batches:
            train(batch)
            meter.step(samples=len(batch), tokens=batch.numel())
        print(meter.tokens_per_second)

    `clock` returns seconds and must never go backwards (`time.perf_counter`, not `time.time`). On an accelerator
    the work is queued: synchronise the device before `start` and before each `step`, or the time of a step is
    the time it took to queue it. `samples` and `tokens` are those of *this* rank over *all* micro-steps of the
    optimizer step; a rank that reads no data of its own (a later pipeline stage) counts 0.

    Rates are of this rank, over the steps after the first `warmup_steps`, and None until such a step has ended.
    Misuse raises UsageError, and so does a clock that went backwards: dropping that step would hide that the
    clock jumps, and its forward jumps cannot be told from slow steps.
    """

    def __init__(self, *, clock: Callable[[], float], warmup_steps: SupportsIndex = 0) -> None:
        self._clock = clock
        self._warmup_steps = _whole(warmup_steps, "warmup_steps")
        self._last_reading: float | None = None
        self._running_since: float | None = None
        self._paused_since: float | None = None
        self._ran = 0.0
        self._paused_seconds = 0.0
        self._step_seconds: list[float] = []
        self._samples: list[int] = []
        self._tokens: list[int] = []

    def start(self) -> None:
        """Begin the first step; once."""
        if self._last_reading is not None:
            raise UsageError("the meter was started already; use a new one for another run")
        self._running_since = self._read()

    def step(self, *, samples: SupportsIndex, tokens: SupportsIndex) -> None:
        """End an optimizer step that took `samples` sequences and `tokens` tokens on this rank, and begin the next."""
        running_since = self._require_running("step")
        counted = _whole(samples, "samples"), _whole(tokens, "tokens")
        now = self._read()
        self._step_seconds.append(self._ran + (now - running_since))
        self._samples.append(counted[0])
        self._tokens.append(counted[1])
        self._ran = 0.0
        self._running_since = now

    def pause(self) -> None:
        """Stop the clock for what is not training (evaluation, a checkpoint); its time counts in no step."""
        running_since = self._require_running("pause")
        now = self._read()
        self._ran += now - running_since
        self._running_since = None
        self._paused_since = now

    def resume(self) -> None:
        """Let the clock run on after `pause`."""
        if self._paused_since is None:
            raise UsageError("resume() without a pause() before it")
        now = self._read()
        self._paused_seconds += now - self._paused_since
        self._paused_since = None
        self._running_since = now

    @property
    def warmup_steps(self) -> int:
        """First steps that are recorded but left out of every timed figure."""
        return self._warmup_steps

    @property
    def step_seconds(self) -> tuple[float, ...]:
        """Seconds of every finished step, warm-up steps included, pauses left out."""
        return tuple(self._step_seconds)

    @property
    def samples(self) -> tuple[int, ...]:
        """Sequences of every finished step, warm-up steps included."""
        return tuple(self._samples)

    @property
    def tokens(self) -> tuple[int, ...]:
        """Tokens of every finished step, warm-up steps included."""
        return tuple(self._tokens)

    @property
    def paused_seconds(self) -> float:
        """Seconds between `pause` and `resume`, over all pauses that have ended."""
        return self._paused_seconds

    @property
    def timed_steps(self) -> int:
        """Finished steps after the warm-up."""
        return max(0, len(self._step_seconds) - self._warmup_steps)

    @property
    def timed_seconds(self) -> float:
        """Seconds of the timed steps."""
        return math.fsum(self._step_seconds[self._warmup_steps :])

    @property
    def timed_samples(self) -> int:
        """Sequences of the timed steps on this rank."""
        return sum(self._samples[self._warmup_steps :])

    @property
    def timed_tokens(self) -> int:
        """Tokens of the timed steps on this rank."""
        return sum(self._tokens[self._warmup_steps :])

    @property
    def samples_per_second(self) -> float | None:
        """Sequences per second on this rank; None while no time was measured."""
        seconds = self.timed_seconds
        return self.timed_samples / seconds if seconds > 0 else None

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens per second on this rank; None while no time was measured."""
        seconds = self.timed_seconds
        return self.timed_tokens / seconds if seconds > 0 else None

    def record(
        self,
        *,
        peak_process_bytes: int,
        peak_device_allocated_bytes: int | None = None,
        peak_device_reserved_bytes: int | None = None,
    ) -> RankRecord:
        """Return what this rank measured, with the peaks of its memory in bytes (None: no device memory)."""
        return RankRecord(
            step_seconds=list(self._step_seconds),
            samples=list(self._samples),
            tokens=list(self._tokens),
            peak_device_allocated_bytes=peak_device_allocated_bytes,
            peak_device_reserved_bytes=peak_device_reserved_bytes,
            peak_process_bytes=peak_process_bytes,
        )

    def _require_running(self, verb: str) -> float:
        if self._running_since is not None:
            return self._running_since
        if self._paused_since is not None:
            raise UsageError(f"{verb}() while the meter is paused; call resume() first")
        raise UsageError(f"{verb}() before start()")

    def _read(self) -> float:
        now = float(self._clock())
        if not math.isfinite(now):
            raise UsageError(f"the clock returned {now!r}; it must return seconds")
        if self._last_reading is not None and now < self._last_reading:
            raise UsageError(
                f"the clock went backwards, from {self._last_reading!r} to {now!r} seconds; "
                "give the meter a monotonic one, such as time.perf_counter"
            )
        self._last_reading = now
        return now


def _whole(value: SupportsIndex, what: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"{what} must be a whole number; got {value!r}") from None
    if number < 0:
        raise UsageError(f"{what} must be at least 0; got {value!r}")
    return number
