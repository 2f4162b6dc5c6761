"""Tells DDP when all parts of one of its buckets are averaged."""

from __future__ import annotations

import threading

import torch


class Gate:
    """Completes `future` when `waiting` parts have finished, in whichever thread; at once when there are none."""

    def __init__(self, device: torch.device, *, waiting: int) -> None:
        self.future: torch.futures.Future[None] = torch.futures.Future(
            devices=[device] if device.type == "cuda" else []
        )
        self.failure: BaseException | None = None
        self._waiting = waiting
        self._lock = threading.Lock()
        if not waiting:
            self.future.set_result(None)

    def one_finished(self, failure: BaseException | None) -> None:
        """Count one part, and keep the first failure."""
        with self._lock:
            self.failure = self.failure or failure
            self._waiting -= 1
            complete = self._waiting == 0
        if complete:
            self.future.set_result(None)
