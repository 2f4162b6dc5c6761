"""The throughput meter: turns the caller's clock readings and counts into one rank's record."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, SupportsIndex

from gradwire.errors import UsageError
from gradwire.measure.clock_jumps import forward_jumps, jump_notes
from gradwire.measure.totals import RankRecord

JUMP_SECONDS = 3600.0
_COUNTED = ("samples", "tokens", "slots")
_STATE_VERSION = 1


class TimedWork(NamedTuple):
    """What one rank did in some timed steps, and the seconds they took."""

    seconds: float
    samples: int
    tokens: int
    slots: int


class ThroughputMeter:
    """Times optimizer steps by a clock that the caller supplies, and counts the work in them.

        meter = ThroughputMeter(clock=time.perf_counter, warmup_steps=3)
        meter.start()
        for batch in batches:
            train(batch)
            meter.step(samples=len(batch), tokens=batch.numel())
        print(meter.tokens_per_second)

    `clock` returns seconds, best a monotonic one (`time.perf_counter`, not `time.time`). On an accelerator the work
    is queued: synchronise the device before `start` and before each `step`, or the time of a step is the time it took
    to queue it. Counts are those of *this* rank over *all* micro-steps of the optimizer step. Ranks that share a batch
    (of a tensor-, sequence- or pipeline-parallel group) give it to be counted once: all but one have `counts` False.

    Rates are of this rank, over the timed steps: neither among the first `warmup_steps` after a start or a resume from
    a checkpoint, nor with a jump of the clock in them. A clock that goes backwards is a jump; one that is put forward,
    or a machine that was suspended, can be told from a slow step only by its size: a step of `jump_seconds` or more
    (None: no limit) that took 100 times the median step. `notes` says which steps those were. Misuse raises UsageError.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        warmup_steps: SupportsIndex = 0,
        counts: bool = True,
        jump_seconds: float | None = JUMP_SECONDS,
    ) -> None:
        self._clock = clock
        self._warmup_steps = _whole(warmup_steps, "warmup_steps")
        self._counts = counts
        self._jump_seconds = jump_seconds
        self._last_reading: float | None = None
        self._put_back = 0.0
        self._went_back = False
        self._running_since: float | None = None
        self._paused_since: float | None = None
        self._ran = 0.0
        self._paused_seconds = 0.0
        self._step_seconds: list[float] = []
        self._counted: dict[str, list[int]] = {name: [] for name in _COUNTED}
        self._warm: list[bool] = []
        self._has_long_step = False
        self._backward: list[int] = []
        self._warm_left = self._warmup_steps

    def start(self) -> None:
        """Begin the first step; once."""
        if self._last_reading is not None:
            raise UsageError("the meter was started already; use a new one for another run")
        self._running_since = self._read()

    def step(self, *, samples: SupportsIndex, tokens: SupportsIndex, slots: SupportsIndex | None = None) -> None:
        """End an optimizer step on `samples` sequences and `tokens` tokens of this rank, and begin the next.

        `tokens` are real ones; `slots` counts padding too, and is `tokens` where None.
        """
        running_since = self._require_running("step")
        counted = {"samples": _whole(samples, "samples"), "tokens": _whole(tokens, "tokens")}
        counted["slots"] = counted["tokens"] if slots is None else _whole(slots, "slots")
        now = self._read()
        if self._went_back:
            self._backward.append(len(self._step_seconds))
        took = self._ran + (now - running_since)
        self._step_seconds.append(took)
        self._has_long_step = self._has_long_step or self._is_long(took)
        for name, count in counted.items():
            self._counted[name].append(count if self._counts else 0)
        self._warm.append(self._warm_left > 0)
        self._warm_left = max(0, self._warm_left - 1)
        self._went_back = False
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
        went_back = self._went_back
        now = self._read()
        # What the clock did in a pause is in no step.
        self._went_back = went_back
        self._paused_seconds += now - self._paused_since
        self._paused_since = None
        self._running_since = now

    def state_dict(self) -> dict[str, Any]:
        """Return the finished steps as plain JSON values, to go into a checkpoint; an unfinished one is left out."""
        return {
            "version": _STATE_VERSION,
            "step_seconds": list(self._step_seconds),
            "warm": list(self._warm),
            "backward": list(self._backward),
            "paused_seconds": self._paused_seconds,
            **{name: list(counts) for name, counts in self._counted.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put the steps of an earlier run, from its `state_dict`, before those to come; call it before `start`.

        The time between the two runs is in no step, and the first steps are warm-up again: allocators, compilers and
        file caches begin anew. A checkpoint has one rank's state for all of them, maybe: a meter that does not count
        takes the times alone. Raises UsageError after `start`, and for what is no state of this meter's.
        """
        if self._last_reading is not None or self._step_seconds:
            raise UsageError("load_state_dict() comes before start()")
        lengths = {name: len(state.get(name, ())) for name in ("step_seconds", "warm", *_COUNTED)}
        if state.get("version") != _STATE_VERSION or len(set(lengths.values())) != 1 or "backward" not in state:
            raise UsageError(f"not the state of a ThroughputMeter: it has {', '.join(sorted(state)) or 'nothing'}")
        self._step_seconds = [float(seconds) for seconds in state["step_seconds"]]
        self._has_long_step = any(map(self._is_long, self._step_seconds))
        self._counted = {
            name: [_whole(count, name) if self._counts else 0 for count in state[name]] for name in _COUNTED
        }
        self._warm = [bool(warm) for warm in state["warm"]]
        self._backward = [_whole(step, "backward") for step in state["backward"]]
        self._paused_seconds = float(state["paused_seconds"])

    @property
    def warmup_steps(self) -> int:
        """First steps, after each start, that are recorded but left out of every timed figure."""
        return self._warmup_steps

    @property
    def steps(self) -> int:
        """How many steps are finished, warm-up steps included."""
        return len(self._step_seconds)

    @property
    def last_step_seconds(self) -> float:
        """Seconds of the step that was finished last; raises UsageError before there is one."""
        if not self._step_seconds:
            raise UsageError("no step is finished yet")
        return self._step_seconds[-1]

    @property
    def step_seconds(self) -> tuple[float, ...]:
        """Seconds of every finished step, warm-up steps included, pauses left out."""
        return tuple(self._step_seconds)

    @property
    def samples(self) -> tuple[int, ...]:
        """Sequences of every finished step, warm-up steps included."""
        return tuple(self._counted["samples"])

    @property
    def tokens(self) -> tuple[int, ...]:
        """Tokens of every finished step, warm-up steps included."""
        return tuple(self._counted["tokens"])

    @property
    def slots(self) -> tuple[int, ...]:
        """Tokens of every finished step with padding, warm-up steps included."""
        return tuple(self._counted["slots"])

    @property
    def paused_seconds(self) -> float:
        """Seconds between `pause` and `resume`, over all pauses that have ended."""
        return self._paused_seconds

    @property
    def jumped_steps(self) -> tuple[int, ...]:
        """Finished steps, counted from 0, in which the clock jumped; they are in no timed figure."""
        return tuple(sorted({*self._backward, *self._forward()}))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of the clock; empty where nothing is to be said."""
        return tuple(jump_notes(self._step_seconds, backward=self._backward, forward=self._forward()))

    @property
    def timed(self) -> tuple[int, ...]:
        """The timed steps, counted from 0."""
        jumped = set(self.jumped_steps)
        return tuple(step for step, warm in enumerate(self._warm) if not warm and step not in jumped)

    @property
    def timed_steps(self) -> int:
        """How many steps are timed."""
        return len(self.timed)

    @property
    def timed_seconds(self) -> float:
        """Seconds of the timed steps."""
        return math.fsum(self._step_seconds[step] for step in self.timed)

    @property
    def timed_samples(self) -> int:
        """Sequences of the timed steps on this rank."""
        return self._timed_sum("samples")

    @property
    def timed_tokens(self) -> int:
        """Tokens of the timed steps on this rank."""
        return self._timed_sum("tokens")

    @property
    def timed_slots(self) -> int:
        """Tokens of the timed steps on this rank, with padding."""
        return self._timed_sum("slots")

    @property
    def samples_per_second(self) -> float | None:
        """Sequences per second on this rank; None while no time was measured."""
        return self._rate("samples")

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens per second on this rank; None while no time was measured."""
        return self._rate("tokens")

    @property
    def slots_per_second(self) -> float | None:
        """Tokens per second on this rank, with padding; None while no time was measured."""
        return self._rate("slots")

    def timed_since(self, first_step: int) -> TimedWork:
        """Return the work of the timed steps from `first_step` (counted from 0) on; takes as long as they are many."""
        jumped = set(self.jumped_steps)
        steps = [step for step in range(first_step, self.steps) if not self._warm[step] and step not in jumped]
        samples, tokens, slots = (sum(self._counted[name][step] for step in steps) for name in _COUNTED)
        seconds = math.fsum(self._step_seconds[step] for step in steps)
        return TimedWork(seconds=seconds, samples=samples, tokens=tokens, slots=slots)

    def record(
        self,
        *,
        peak_process_bytes: int,
        peak_device_allocated_bytes: int | None = None,
        peak_device_reserved_bytes: int | None = None,
    ) -> RankRecord:
        """Return what this rank measured, with the peaks of its memory in bytes (None: no device memory)."""
        timed = set(self.timed)
        return RankRecord(
            step_seconds=list(self._step_seconds),
            samples=list(self._counted["samples"]),
            tokens=list(self._counted["tokens"]),
            slots=list(self._counted["slots"]),
            untimed_steps=[step for step in range(len(self._warm)) if step not in timed],
            paused_seconds=self._paused_seconds,
            notes=list(self.notes),
            peak_device_allocated_bytes=peak_device_allocated_bytes,
            peak_device_reserved_bytes=peak_device_reserved_bytes,
            peak_process_bytes=peak_process_bytes,
        )

    def _is_long(self, seconds: float) -> bool:
        return self._jump_seconds is not None and seconds >= self._jump_seconds

    def _forward(self) -> list[int]:
        # Asked for at each log, in a run of millions of steps too.
        if not self._has_long_step:
            return []
        timed = {step: self._step_seconds[step] for step, warm in enumerate(self._warm) if not warm}
        return forward_jumps(timed, backward=self._backward, at_least_seconds=self._jump_seconds)

    def _timed_sum(self, name: str) -> int:
        counts = self._counted[name]
        return sum(counts[step] for step in self.timed)

    def _rate(self, name: str) -> float | None:
        seconds = self.timed_seconds
        return self._timed_sum(name) / seconds if seconds > 0 else None

    def _require_running(self, verb: str) -> float:
        if self._running_since is not None:
            return self._running_since
        if self._paused_since is not None:
            raise UsageError(f"{verb}() while the meter is paused; call resume() first")
        raise UsageError(f"{verb}() before start()")

    def _read(self) -> float:
        reading = float(self._clock())
        if not math.isfinite(reading):
            raise UsageError(f"the clock returned {reading!r}; it must return seconds")
        if self._last_reading is not None and reading < self._last_reading:
            # How long it really was since the last reading is not known: no time passes here.
            self._put_back += self._last_reading - reading
            self._went_back = True
        self._last_reading = reading
        return reading + self._put_back


def _whole(value: SupportsIndex, what: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"{what} must be a whole number; got {value!r}") from None
    if number < 0:
        raise UsageError(f"{what} must be at least 0; got {value!r}")
    return number
