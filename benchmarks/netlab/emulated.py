"""A model whose compute is sleep and whose gradients are real: what the wire does shows even on two shared cores."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn

WIDTH = 324
LAYERS = 6
FORWARD_SHARE = 1 / 3
_GRADIENT_STD = 1e-3


def layer_shapes(width: int) -> tuple[tuple[int, ...], ...]:
    """Return the parameter shapes of one transformer layer: two norms, attention, and a feed-forward of 4 x width."""
    return (
        (width,),
        (width,),
        (3 * width, width),
        (3 * width,),
        (width, width),
        (width,),
        (width,),
        (width,),
        (4 * width, width),
        (4 * width,),
        (width, 4 * width),
        (width,),
    )


class EmulatedModel(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """`layers` transformer-sized layers that take `compute_seconds` per step: a third forward, the rest backward.

    A layer's gradients appear together at the end of its share of backward, last layer first. They are fixed random
    numbers, other ones on each rank and for each parameter: methods may compress them but not learn anything from them.
    """

    def __init__(self, *, compute_seconds: float, seed: int, width: int = WIDTH, layers: int = LAYERS) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self._forward_seconds = compute_seconds * FORWARD_SHARE / layers
        self._backward_seconds = compute_seconds * (1 - FORWARD_SHARE) / layers
        self.layers = nn.ModuleList(
            nn.ParameterList(nn.Parameter(torch.zeros(shape)) for shape in layer_shapes(width)) for _ in range(layers)
        )
        self._gradients = [
            [torch.randn(parameter.shape, generator=generator) * _GRADIENT_STD for parameter in layer.parameters()]
            for layer in self.layers
        ]

    def forward(self, activations: Tensor) -> Tensor:
        """Return `activations`, which must require a gradient for the first layer's backward to run."""
        for layer, gradients in zip(self.layers, self._gradients, strict=True):
            activations = _SleepingLayer.apply(
                activations, self._forward_seconds, self._backward_seconds, gradients, *layer.parameters()
            )
        return activations


class _SleepingLayer(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any,
        activations: Tensor,
        forward_seconds: float,
        backward_seconds: float,
        gradients: list[Tensor],
        *parameters: Tensor,
    ) -> Tensor:
        ctx.backward_seconds, ctx.gradients = backward_seconds, gradients
        time.sleep(forward_seconds)
        return activations.clone()

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor) -> tuple[Any, ...]:
        time.sleep(ctx.backward_seconds)
        return (incoming[0], None, None, None, *ctx.gradients)
