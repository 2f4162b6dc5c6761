"""Times a method's own arithmetic on this machine: one bucket after another in a world of one rank, with no wire."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from gradwire.documents.recipe_schema import Compression
from gradwire.train.communication.interface import Bucket, Method
from gradwire.train.communication.lanes import Lanes
from gradwire.train.communication.layout import Layout, layout_of
from gradwire.train.communication.register import method_of

# Enough for the arithmetic to dwarf what each call costs, little enough to take milliseconds.
_LARGE_BYTES = 8 * 1024 * 1024
_REPEATS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Arithmetic:
    """Seconds of arithmetic: for each byte of gradient, and what each bucket adds to it."""

    seconds_per_byte: float
    seconds_per_bucket: float


def measure_arithmetic(model: Any, compression: Compression, *, process_group: Any, device: torch.device) -> Arithmetic:
    """Return the slowest rank's arithmetic of `compression` on gradients shaped as `model`'s; all ranks call this.

    Nothing for `none`, `local-sgd` and torch's fp16; torch's own PowerSGD is taken to cost what Gradwire's does.
    """
    if compression.method in ("none", "local-sgd", "fp16-torch"):
        return Arithmetic(seconds_per_byte=0.0, seconds_per_bucket=0.0)
    parameters = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    alone = dist.new_group([dist.get_rank()], use_local_synchronization=True)
    lanes = Lanes(alone, 2, device)
    large = _Sample(_head(parameters, _LARGE_BYTES), compression, device)
    small = _Sample(_head(parameters, 1), compression, device)
    # Powers of two in bytes would be the same bucket for a model of one parameter.
    seconds = torch.tensor([large.seconds(lanes), small.seconds(lanes)], dtype=torch.float64, device=device)
    dist.destroy_process_group(alone)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX, group=process_group)
    long, short = seconds.tolist()
    more = large.gradient_bytes - small.gradient_bytes
    per_byte = max(long - short, 0.0) / more if more else long / large.gradient_bytes
    return Arithmetic(seconds_per_byte=per_byte, seconds_per_bucket=max(short - per_byte * small.gradient_bytes, 0.0))


class _Sample:
    """One bucket of random gradients and a method of its own."""

    def __init__(self, parameters: list[tuple[str, Any]], compression: Compression, device: torch.device) -> None:
        self._layout: Layout = layout_of(
            [name for name, _ in parameters], [parameter.detach() for _, parameter in parameters]
        )
        generator = torch.Generator().manual_seed(0)
        self._gradients = torch.randn(self._layout.numel, generator=generator, device="cpu").to(
            device, parameters[0][1].dtype
        )
        self._method: Method = method_of(compression, unused=False)
        self._step = compression.start_step
        self._device = device
        self.gradient_bytes = self._gradients.numel() * self._gradients.element_size()

    def seconds(self, lanes: Lanes) -> float:
        """Return the fastest of a few averagings, the first left out."""
        return min([self._averaged(lanes) for _ in range(1 + _REPEATS)][1:])

    def _averaged(self, lanes: Lanes) -> float:
        flat = self._gradients.clone()
        _wait_for(self._device)
        started = time.perf_counter()
        with torch.no_grad():
            for work in self._method.average(Bucket(flat=flat, layout=self._layout, step=self._step), lanes):
                work.wait()
        _wait_for(self._device)
        self._step += 1
        return time.perf_counter() - started


def _head(parameters: list[tuple[str, Any]], most_bytes: int) -> list[tuple[str, Any]]:
    """Return the last parameters, as DDP's first bucket has them, up to `most_bytes`, and one matrix at least."""
    chosen: list[tuple[str, Any]] = []
    size, has_matrix = 0, False
    for name, parameter in reversed(parameters):
        if size >= most_bytes and has_matrix:
            break
        chosen.append((name, parameter))
        size += parameter.numel() * parameter.element_size()
        has_matrix = has_matrix or parameter.dim() > 1
    return chosen


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
