"""Stretches a real model's compute to a given time: what the model computes faster than that, it sleeps away."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.netlab.emulated import FORWARD_SHARE


class PacedCompute:
    """Makes one forward and backward pass of `layers` take `seconds`, a third of it forward, at an even pace.

    A layer that is done before its time waits for it; one that is late waits for nothing. So hooks, buckets and the
    wire meet real gradients at the times of a model that computes in `seconds`, whatever the machine.
    """

    def __init__(self, layers: nn.ModuleList, seconds: float) -> None:
        self._seconds = seconds
        self._count = len(layers)
        self._began = 0.0
        for index, layer in enumerate(layers):
            layer.register_forward_pre_hook(self._marker(index))

    def begin_forward(self) -> None:
        """Begin a forward pass now."""
        self._began = time.perf_counter()

    def begin_backward(self) -> None:
        """Wait for the forward pass's end, and begin the backward pass."""
        _sleep_until(self._began + self._seconds * FORWARD_SHARE)
        self._began = time.perf_counter()

    def end_backward(self) -> None:
        """Wait for the backward pass's end; what is still on the wire has had this time too."""
        _sleep_until(self._began + self._seconds * (1 - FORWARD_SHARE))

    def wait_in_backward(self, index: int) -> None:
        """Wait until the layers from `index` on have had their share of the backward pass."""
        share = (self._count - index) / self._count
        _sleep_until(self._began + self._seconds * (1 - FORWARD_SHARE) * share)

    def _marker(self, index: int) -> Any:
        def mark(_: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            first, *others = arguments
            return (_Mark.apply(first, self, index), *others) if torch.is_grad_enabled() else arguments

        return mark


class _Mark(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, activations: Tensor, pace: PacedCompute, index: int) -> Tensor:
        ctx.pace, ctx.index = pace, index
        return activations.view_as(activations)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor) -> tuple[Any, ...]:
        ctx.pace.wait_in_backward(ctx.index)
        return incoming[0], None, None


def _sleep_until(moment: float) -> None:
    left = moment - time.perf_counter()
    if left > 0:
        time.sleep(left)
