"""Follows a training loop from outside: marks what happens in a step, counts its batches, writes each step down."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gradwire.integrations.attach.harmless import Harmless
from gradwire.measure.marks import Mark
from gradwire.measure.rank_log import RankFacts, RankStep, RankWriter

FOLDER_VARIABLE = "GRADWIRE_MEASURE"
WARMUP_VARIABLE = "GRADWIRE_MEASURE_WARMUP"

_MOST_FOLLOWED = 10


@dataclass(kw_only=True, slots=True)
class _Step:
    """One step's marks, each with its moment; a moment is seconds, or an event in the device's stream."""

    number: int
    began: Any
    marks: list[Mark]
    moments: list[Any]
    passes: int = 0
    samples: int | None = None
    tokens: Any = None
    slots: int | None = None
    ready: Any = None


@cache
def observer() -> Observer:
    """Return this process's observer."""
    return Observer(Path(os.environ[FOLDER_VARIABLE]), warmup_steps=int(os.environ.get(WARMUP_VARIABLE, "3")))


class Observer:
    """Watches the steps of the first optimizer that steps, or of DeepSpeed's engine, in the thread that steps it.

    On a GPU a mark is an event in its stream, read when it is over: no step waits for the device. The first step is not
    timed: its end is when the model is looked for and hooked.
    """

    def __init__(self, folder: Path, *, warmup_steps: int) -> None:
        self._folder = folder
        self._warmup_steps = warmup_steps
        self._harmless = Harmless()
        self._is_bystander = False
        self._is_forked = False
        os.register_at_fork(after_in_child=self._after_fork)
        self._begin()
        atexit.register(self._end)

    def _begin(self) -> None:
        """Know nothing of any training yet."""
        self._thread = threading.get_ident()
        self._has_thread = False
        self._optimizer: weakref.ref[Any] | None = None
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._followed = 0
        self._has_engine = False
        self._within: list[Mark] = []
        self._device: Any = None
        self._subject: Any = None
        self._writer: RankWriter | None = None
        self._waiting: deque[_Step] = deque()
        self._step = _Step(number=1, began=time.perf_counter(), marks=[], moments=[])

    def optimizer_begins(self, optimizer: Any) -> None:
        """An optimizer is about to step."""
        self._take_thread()
        if not self._has_engine:
            self._leave("optimizer-begin")

    def optimizer_ended(self, optimizer: Any) -> None:
        """An optimizer has stepped; the first one's steps are the steps."""
        if self._has_engine or not self._is_watching():
            return
        with self._harmless:
            self._leave("optimizer-end")
            self._optimizers.add(optimizer)
            followed = None if self._optimizer is None else self._optimizer()
            if followed is None:
                # The first one, or the one after it: a script may train one model after the other.
                self._optimizer, followed = weakref.ref(optimizer), optimizer
                # To look for a model takes a while, and a script may make an optimizer for each of many small tasks.
                if self._subject is not None and self._followed < _MOST_FOLLOWED:
                    self._followed += 1
                    self._subject.follow(optimizer)
            if followed is optimizer:
                self._end_step(optimizer)

    def engine_begins(self, engine: Any) -> bool:
        """Return whether the engine's `step`, about to begin, ends a step."""
        ends = False
        self._take_thread()
        if self._is_watching():
            with self._harmless:
                self._has_engine = True
                self._leave("optimizer-begin")
                ends = bool(engine.is_gradient_accumulation_boundary())
        return ends

    def engine_ended(self, engine: Any, *, ends_step: bool) -> None:
        """The engine's `step` has ended."""
        with self._harmless:
            self._leave("optimizer-end")
            if ends_step and self._is_watching():
                self._end_step(engine)

    @contextmanager
    def between(self, begin: Mark, end: Mark) -> Iterator[None]:
        """Mark the beginning and the end of what is done inside; only the outermost of several."""
        if threading.get_ident() != self._thread:
            # A checkpoint that is written beside the training holds up nothing.
            yield
            return
        within = self._within
        is_outermost = begin not in within
        if is_outermost:
            self._leave(begin)
        within.append(begin)
        try:
            yield
        finally:
            within.remove(begin)
            if is_outermost:
                self._leave(end)

    def model_called(self, see: Callable[[], tuple[bool, Any] | None]) -> None:
        """The watched model is called; `see` finds out whether it trains, and the counts of its batch or None."""
        if not self._is_watching() or "aside-begin" in self._within:
            return
        with self._harmless:
            seen = see()
            if seen is None:
                return
            trains, counts = seen
            self._leave("pass" if trains else "evaluation")
            if counts is not None:
                step = self._step
                step.passes += 1
                step.samples = _plus(step.samples, counts.samples)
                step.tokens = _plus(step.tokens, counts.tokens)
                step.slots = _plus(step.slots, counts.slots)

    def _after_fork(self) -> None:
        if self._subject is not None or _has_process_group():
            # A loader's worker and the like: what it does belongs to no step of its parent.
            self._is_bystander = True
        else:
            # Maybe to train: some launchers fork their ranks.
            self._is_forked = True
            self._begin()

    def _take_thread(self) -> None:
        """Watch the thread that makes the first step; until then it was the one that imported torch."""
        if not self._has_thread:
            if self._thread != threading.get_ident():
                self._begin()
            self._has_thread = True

    def _is_watching(self) -> bool:
        return not self._harmless.is_broken and not self._is_bystander and threading.get_ident() == self._thread

    def _leave(self, mark: Mark) -> None:
        # Nothing is told apart in what is set aside as a whole.
        if self._is_watching() and "aside-begin" not in self._within:
            with self._harmless:
                self._step.marks.append(mark)
                self._step.moments.append(self._now())

    def _now(self) -> Any:
        if self._device is None or self._device.type != "cuda":
            return time.perf_counter()
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def _end_step(self, stepped: Any) -> None:
        ended = self._step
        if ended.number == 1:
            # What came before belongs to no step.
            ended.began = ended.moments[0]
            self._begin_to_watch(stepped)
            began = self._now()
        else:
            began = ended.moments[-1]
        if self._is_on_gpu():
            self._fetch(ended)
        self._step = _Step(number=ended.number + 1, began=began, marks=[], moments=[])
        self._waiting.append(ended)
        self._write_finished()
        if ended.number == self._warmup_steps and self._subject is not None:
            self._subject.energy.start()
        if ended.number & (ended.number - 1) == 0:
            self._write_facts()

    def _begin_to_watch(self, stepped: Any) -> None:
        from gradwire.integrations.attach.subject import Subject

        self._subject = Subject(stepped, see=self.model_called, is_engine=self._has_engine)
        self._writer = RankWriter(self._folder, self._subject.start(warmup_steps=self._warmup_steps))
        self._device = self._subject.device
        if self._is_forked:
            from multiprocessing.util import Finalize

            # Its processes end without Python's atexit.
            Finalize(None, self._end, exitpriority=0)

    def _is_on_gpu(self) -> bool:
        return self._device is not None and self._device.type == "cuda"

    def _fetch(self, step: _Step) -> None:
        from gradwire.integrations.device import on_host

        if step.number == 1:
            return
        step.tokens = on_host(step.tokens)
        # After the copies, so that it says when they have arrived.
        step.ready = self._now()

    def _write_finished(self) -> None:
        while self._waiting and (self._waiting[0].ready is None or self._waiting[0].ready.query()):
            step = self._waiting.popleft()
            seconds = [_between(*pair) for pair in zip([step.began, *step.moments], step.moments, strict=False)]
            if self._writer is not None:
                self._writer.write(
                    RankStep(
                        step=step.number,
                        marks=step.marks,
                        seconds=seconds,
                        passes=step.passes,
                        samples=step.samples,
                        tokens=None if step.tokens is None else int(step.tokens),
                        slots=step.slots,
                    )
                )

    def _write_facts(self) -> None:
        if self._writer is not None and self._subject is not None:
            facts: RankFacts = self._subject.facts(optimizers=len(self._optimizers))
            self._writer.write(facts)

    def _end(self) -> None:
        # In the main thread, whichever trained.
        if self._harmless.is_broken or self._is_bystander:
            return
        with self._harmless:
            if self._waiting and self._waiting[-1].ready is not None:
                self._waiting[-1].ready.synchronize()
            self._write_finished()
            self._write_facts()


def _has_process_group() -> bool:
    # Not there where torch was built without it, or is being imported.
    is_initialized = getattr(sys.modules.get("torch.distributed"), "is_initialized", None)
    return is_initialized is not None and bool(is_initialized())


def _plus(before: Any, found: Any) -> Any:
    return found if before is None else before if found is None else before + found


def _between(before: Any, after: Any) -> float:
    """Seconds between two moments."""
    return after - before if isinstance(after, float) else float(before.elapsed_time(after)) / 1000
