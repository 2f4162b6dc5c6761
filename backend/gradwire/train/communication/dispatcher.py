"""Runs the averaging of many buckets at once, every collective in an order that is the same on all ranks."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.distributed import Work

from gradwire.errors import RunFailed

Finished = Callable[[BaseException | None], None]


@dataclass(kw_only=True, slots=True, eq=False)
class _Job:
    """One bucket on its way: `parts_run` parts of its generator have run; `work` is what the next one waits for."""

    parts: Iterator[Work]
    finished: Finished
    parts_run: int = 0
    work: Work | None = None
    ready: bool = True


class ThreadDispatcher:
    """One thread that does all the arithmetic and starts all the collectives of CPU buckets.

    The n-th part of a bucket runs only after the n-th part of the bucket before it. That, and one lane per part,
    makes the order on each lane the order of the buckets, however the ranks' timing differs. Nothing blocks: a
    collective that ends puts its bucket back in the queue. Parts that start collectives go before those that end a
    bucket, so that the wire is kept busy.
    """

    def __init__(self) -> None:
        self.communication_seconds = 0.0
        self._events: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._jobs: list[_Job] = []
        self._failure: BaseException | None = None
        self._under_way = 0
        self._busy_since = 0.0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="gradient-communication", daemon=True)
        self._thread.start()

    def submit(self, parts: Iterator[Work], finished: Finished) -> None:
        """Queue a bucket, in bucket order; `finished` is called once, with what went wrong or None."""
        job = _Job(parts=parts, finished=finished)
        with self._lock:
            if self._failure is None:
                self._events.put(job)
                return
        finished(self._failure)

    def close(self) -> None:
        """End the thread once everything queued has run."""
        self._events.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            with torch.no_grad():
                self._loop()
        finally:
            # Whatever ended the loop, nobody may wait for ever.
            self._abandon(sys.exception() or RunFailed("gradient communication was closed"))

    def _loop(self) -> None:
        while self._failure is None:
            if not self._take(self._events.get()):
                return
            while self._failure is None and (job := self._next()) is not None:
                self._advance(job)
                while not self._events.empty():
                    if not self._take(self._events.get()):
                        return

    def _take(self, job: _Job | None) -> bool:
        if job is None:
            return False
        if job.work is None:
            self._jobs.append(job)
        else:
            self._under_way -= 1
            if not self._under_way:
                self.communication_seconds += time.perf_counter() - self._busy_since
            try:
                job.work.wait()  # it has ended: this only raises what went wrong
            except RuntimeError as error:  # as torch.distributed raises when a peer is gone or late
                self._abandon(error)
                return False
            job.ready = True
        return True

    def _next(self) -> _Job | None:
        """Return the job to go on with: of those that may run, the one with the fewest parts behind it."""
        best, before = None, None
        for job in self._jobs:
            in_order = before is None or before.parts_run > job.parts_run
            if job.ready and in_order and (best is None or job.parts_run < best.parts_run):
                best = job
            before = job
        return best

    def _advance(self, job: _Job) -> None:
        try:
            work = next(job.parts, None)
        except RuntimeError as error:
            self._abandon(error)
            return
        job.parts_run += 1
        if work is None:
            self._jobs.remove(job)
            job.finished(None)
            return
        job.work, job.ready = work, False
        if not self._under_way:
            self._busy_since = time.perf_counter()
        self._under_way += 1
        work.get_future().add_done_callback(lambda _: self._events.put(job))

    def _abandon(self, failure: BaseException) -> None:
        with self._lock:
            self._failure = self._failure or failure
        jobs, self._jobs = self._jobs, []
        while not self._events.empty():
            job = self._events.get()
            if job is not None and job.work is None:
                jobs.append(job)
        for job in jobs:
            job.finished(failure)


class StreamDispatcher:
    """Queues each CUDA bucket whole on a side stream, from the thread that runs the backward pass.

    There `Work.wait` orders streams and does not block, and backward hands over the buckets in order.
    """

    communication_seconds = None

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)

    def submit(self, parts: Iterator[Work], finished: Finished) -> None:
        """Queue a bucket; `finished` is called with the side stream current."""
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream), torch.no_grad():
            for work in parts:
                work.wait()
            finished(None)

    def close(self) -> None:
        """Wait for what is queued."""
        self._stream.synchronize()
