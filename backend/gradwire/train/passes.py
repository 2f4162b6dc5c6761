"""Times one forward and backward pass of a model before it is wrapped, and when in it each gradient is ready."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from gradwire.measure.communication_cost import GradientTensor, Step
from gradwire.train.communication.layout import layout_of
from gradwire.train.setting import Setting

Passes = Callable[[], Any]
"""Runs the model forward on something of a micro-batch's size and returns the loss."""


def timed_step(model: Any, passes: Passes, *, micro_steps: int, process_group: Any, device: torch.device) -> Step:
    """Return the step that `model` makes of `passes`, as the mean rank sees it: equal on every rank.

    All ranks call this together. It leaves weights, gradients and random numbers as they were; the first of its
    two passes, which allocates, is not counted.
    """
    parameters = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    with _random_numbers_kept(device):
        for _ in range(2):
            dist.barrier(group=process_group)
            clock = _Clock(device)
            ready: dict[str, Any] = {}
            handles = [
                parameter.register_post_accumulate_grad_hook(_noting(ready, name, clock))
                for name, parameter in parameters
            ]
            passes().backward()
            end = clock.read()
            for handle in handles:
                handle.remove()
            for _, parameter in parameters:
                parameter.grad = None
    # A parameter without a gradient takes no part in reduction's timing.
    own = torch.tensor(
        [clock.seconds(end), *(clock.seconds(ready.get(name, end)) for name, _ in parameters)],
        dtype=torch.float64,
        device=device,
    )
    dist.all_reduce(own, group=process_group)
    compute, *seconds = (own / dist.get_world_size(process_group)).tolist()
    return _step(dict(parameters), compute, seconds, micro_steps)


def example_passes(model: Any, setting: Setting, device: torch.device) -> Passes | None:
    """Return the passes of `model`, a LossModel, over a micro-batch of zeros.

    None where torch.compile cuts the model's graph at DDP's buckets: without DDP it would be another graph.
    """
    if setting.plan.recipe.training.compile:
        return None
    return _over_zeros(model, setting, device)


def settling_pass(ddp_model: Any, setting: Setting, device: torch.device) -> Callable[[], None]:
    """Return what makes one backward pass of `ddp_model`, a LossModel in DDP, that leaves no gradient."""

    def settle() -> None:
        _over_zeros(ddp_model, setting, device)().backward()
        ddp_model.zero_grad(set_to_none=True)

    return settle


def _over_zeros(model: Any, setting: Setting, device: torch.device) -> Passes:
    shape = (setting.plan.batch.batch_size_per_gpu, setting.model.sequence_length)
    zeros = torch.zeros(shape, dtype=torch.long, device=device)
    return lambda: model(zeros, zeros)


def balanced_step(model: Any, transfer_seconds: float, *, micro_steps: int) -> Step:
    """Return a step whose backward pass takes as long as sending all gradients: where bucket sizes matter most.

    For models whose passes cannot be run ahead. Gradients are ready in the order opposite to that of definition, at a
    pace of equal bytes; forward takes half as long as backward.
    """
    parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    total = sum(parameter.numel() for parameter in parameters.values())
    seconds, left = [], total
    for parameter in parameters.values():
        # The last gradient to be ready is the first parameter's.
        seconds.append(transfer_seconds * (0.5 + left / total))
        left -= parameter.numel()
    return _step(parameters, 1.5 * transfer_seconds, seconds, micro_steps)


def _step(parameters: dict[str, Any], compute_seconds: float, seconds: list[float], micro_steps: int) -> Step:
    gradients = [
        GradientTensor(rows=slot.rows, columns=slot.columns, ready_seconds=min(ready, compute_seconds))
        for (name, parameter), ready in zip(parameters.items(), seconds, strict=True)
        for slot in layout_of([name], [parameter]).slots
    ]
    sizes = {parameter.element_size() for parameter in parameters.values()}
    step = Step(
        compute_seconds=compute_seconds,
        gradients=tuple(sorted(gradients, key=lambda gradient: gradient.ready_seconds)),
        bytes_per_element=max(sizes),
    )
    return step.after(micro_steps - 1) if micro_steps > 1 else step


class _Clock:
    """Readings in the stream that computes; on a CPU, of the processor's own clock."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._began = self.read()

    def read(self) -> Any:
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, reading: Any) -> float:
        if self._device.type != "cuda":
            return float(reading - self._began)
        reading.synchronize()
        return float(self._began.elapsed_time(reading)) / 1000


def _noting(ready: dict[str, Any], name: str, clock: _Clock) -> Callable[[Any], None]:
    def note(_: Any) -> None:
        ready[name] = clock.read()

    return note


@contextmanager
def _random_numbers_kept(device: torch.device) -> Iterator[None]:
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield
