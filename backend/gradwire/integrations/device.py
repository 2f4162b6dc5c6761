"""The throughput meter for loops that queue work on a device: on cuda it waits for nothing."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, SupportsIndex, SupportsInt

import torch

from gradwire.integrations.figures import Flops, figures
from gradwire.measure.meter import ThroughputMeter

Reading = Any
"""A moment: seconds by the clock on cpu, an event in the device's stream on cuda."""


class Log(Protocol):
    """What takes figures: `Trackers.log`, `Accelerator.log`."""

    def __call__(self, figures: dict[str, float], /, *, step: int) -> object:
        """Log the figures of a step."""


# Not frozen: one is made in each step, and that would double what it costs.
@dataclass(kw_only=True, slots=True)
class _Call:
    verb: Literal["start", "step", "pause", "resume"]
    reading: Reading
    ready: Reading
    samples: SupportsInt = 0
    tokens: SupportsInt = 0
    slots: SupportsInt | None = None


class DeviceMeter:
    """A ThroughputMeter whose clock is the device's own.

        meter = DeviceMeter(device, warmup_steps=3)
        meter.start()
        for batch in batches:
            train(batch)
            meter.step(samples=len(batch), tokens=batch.numel())
        print(meter.result().tokens_per_second)

    On cuda each call puts an event into the current stream and returns at once; a step lasts until the device has
    finished what was queued before its event. Events are read when they are over, at the latest in `result`. On cpu the
    clock is read there and then, on any other device (mps, xpu) after waiting for it. `pause` and `resume` leave out
    what is not training. `counts` is False on ranks whose batch another rank counts (see
    `gradwire.integrations.parallel`).

    Every `log_every` steps, `log(figures, step=...)` gets the rates of `gradwire.integrations.figures` over the steps
    since the last time, and on cuda waits for the device as a look at the loss does: `log=accelerator.log`, or
    `log=trackers.log` with `gradwire.trackers.interface`. Each rank of a process group gives the same `log_every`, for
    they add up; `log` is None where nothing is to be logged.
    """

    def __init__(
        self,
        device: torch.device | str,
        *,
        warmup_steps: SupportsIndex = 0,
        counts: bool = True,
        log: Log | None = None,
        log_every: int | None = None,
        flops: Flops | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._device = torch.device(device)
        self._is_cuda = self._device.type == "cuda"
        self._log = log
        self._log_every = log_every
        self._flops = flops
        self._stepped = 0
        self._logged_steps = 0
        self._clock = clock
        self._calls: deque[_Call] = deque()
        self._before: Reading = None
        self._now = 0.0
        self._meter = ThroughputMeter(clock=lambda: self._now, warmup_steps=warmup_steps, counts=counts)

    def read(self) -> Reading:
        """Return this moment, for `at` of the other calls."""
        if not self._is_cuda:
            if self._device.type != "cpu":
                torch.get_device_module(self._device).synchronize()
            return self._clock()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def start(self, *, at: Reading = None) -> None:
        """Begin the first step; once. `at`, here and below: a moment that was read, None: now."""
        self._call("start", at)

    def step(
        self, *, samples: SupportsInt, tokens: SupportsInt, slots: SupportsInt | None = None, at: Reading = None
    ) -> None:
        """End an optimizer step, and begin the next one; counts are this rank's, over all micro-steps.

        `slots` are tokens with padding (None: there is none). A count may be a tensor on the device, which is read
        late as well.
        """
        reading = self._moment(at)
        ready = reading
        if self._is_cuda:
            given = (samples, tokens, slots)
            samples, tokens, slots = (on_host(count) for count in given)
            # Read before the copies, the event would not say when they have arrived.
            ready = reading if samples is given[0] and tokens is given[1] and slots is given[2] else self.read()
        self._append(_Call(verb="step", reading=reading, ready=ready, samples=samples, tokens=tokens, slots=slots))
        self._stepped += 1
        if self._log_every and self._stepped % self._log_every == 0:
            self._log_window()

    def pause(self, *, at: Reading = None) -> None:
        """Stop the clock, now or at an earlier moment after the last call."""
        self._call("pause", at)

    def resume(self, *, at: Reading = None) -> None:
        """Let the clock run on."""
        self._call("resume", at)

    def finished(self) -> ThroughputMeter:
        """Return the meter with the steps that the device has finished; waits for nothing."""
        while self._calls and self._calls[0].ready.query():
            self._replay(self._calls.popleft())
        return self._meter

    def result(self) -> ThroughputMeter:
        """Return the meter with all calls so far in it, after waiting for the device to get there.

        Raises UsageError for calls in an order that makes no sense.
        """
        if self._calls and self._is_cuda:
            self._calls[-1].ready.synchronize()
        return self.finished()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put the steps of an earlier run before those to come: the `state_dict` of its `result`; before `start`."""
        self._meter.load_state_dict(state)
        self._logged_steps = self._stepped = self._meter.steps

    def _log_window(self) -> None:
        meter = self.result()
        found = figures(meter, first_step=self._logged_steps, device=self._device, flops=self._flops)
        self._logged_steps = meter.steps
        if self._log is not None and found:
            self._log(found, step=self._logged_steps)

    def _moment(self, at: Reading) -> Reading:
        return self.read() if at is None else at

    def _call(self, verb: Literal["start", "pause", "resume"], at: Reading) -> None:
        reading = self._moment(at)
        self._append(_Call(verb=verb, reading=reading, ready=reading))

    def _append(self, call: _Call) -> None:
        if not self._is_cuda:
            self._replay(call)
            return
        self._calls.append(call)
        self.finished()

    def _replay(self, call: _Call) -> None:
        if not self._is_cuda:
            self._now = call.reading
        elif self._before is not None:
            # From event to event: the milliseconds are a float of 32 bits, too coarse for a whole run.
            self._now += self._before.elapsed_time(call.reading) / 1000
        self._before = call.reading
        match call.verb:
            case "start":
                self._meter.start()
            case "step":
                slots = None if call.slots is None else _number(call.slots)
                self._meter.step(samples=_number(call.samples), tokens=_number(call.tokens), slots=slots)
            case "pause":
                self._meter.pause()
            case "resume":
                self._meter.resume()


def _number(count: Any) -> Any:
    """Return a count as a whole number; what is none, for the meter to refuse."""
    found = count.item() if isinstance(count, torch.Tensor) else count
    is_integer = getattr(found, "is_integer", None)
    return int(found) if is_integer is not None and is_integer() else found


def on_host(count: Any) -> Any:
    """Return a count on the device as a copy that arrives later, in pinned memory: int() of it waits for nothing."""
    if not isinstance(count, torch.Tensor) or count.device.type != "cuda":
        return count
    return torch.empty(count.shape, dtype=count.dtype, pin_memory=True).copy_(count, non_blocking=True)
