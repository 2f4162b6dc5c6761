"""Times, in each backward pass, what is left of the reduction once the last gradient is ready."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle


class ReductionClock:
    """Watches the backward passes of one DDP model, once somebody has told it that one has ended.

    Exposed is what follows the last gradient: DDP's backward pass ends when every bucket is averaged and back in its
    place. The parameter whose gradient comes last is found in the first watched pass that reduces; later passes note
    that one alone.
    """

    def __init__(self, ddp_model: DistributedDataParallel) -> None:
        self._model = ddp_model
        self._is_cuda = next(ddp_model.module.parameters()).is_cuda
        self._handles: dict[int, RemovableHandle] = {}
        self._settled = False
        self._last: tuple[int, Any] | None = None
        self._exposed: tuple[Any, Any] | None = None
        if not self._is_cuda:
            # Otherwise torch times a hundredth of the passes; on CUDA it waits for the device to do so.
            ddp_model._set_ddp_runtime_logging_sample_rate(1)

    @property
    def exposed_seconds(self) -> float | None:
        """Return the exposed seconds of the last pass that reduced; None where they are not known."""
        if self._exposed is None:
            return None
        began, ended = self._exposed
        if not self._is_cuda:
            return float(ended - began)
        ended.synchronize()
        return float(began.elapsed_time(ended)) / 1000

    @property
    def reduction_seconds(self) -> float | None:
        """Return the seconds from the first bucket's start to the last one's end, by torch's own timers.

        They are those of the pass before the last: torch writes them down one pass late. None before the second. On
        CUDA torch times the first ten passes and every hundredth.
        """
        nanoseconds = self._model._get_ddp_logging_data().get("backward_comm_time")
        return None if not nanoseconds else nanoseconds / 1e9

    def backward_ended(self) -> None:
        """Note the end of a backward pass; the first one, and one that did not reduce, count for nothing."""
        if not self._handles:
            self._handles = {
                id(parameter): parameter.register_post_accumulate_grad_hook(self._note)
                for parameter in self._model.module.parameters()
                if parameter.requires_grad
            }
            return
        last, self._last = self._last, None
        if not self._model.require_backward_grad_sync:
            return
        self._exposed = None if last is None else (last[1], self._read())
        if last is not None and not self._settled:
            self._settled = True
            for identity, handle in self._handles.items():
                if identity != last[0]:
                    handle.remove()

    def close(self) -> None:
        """Leave the model as it was."""
        for handle in self._handles.values():
            handle.remove()

    def _note(self, parameter: torch.Tensor) -> None:
        self._last = (id(parameter), self._read())

    def _read(self) -> Any:
        if not self._is_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event
