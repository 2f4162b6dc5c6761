"""Trains plans one after another in one process group, each with the cause of slowness that its folder is named for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed
from in_one_group import settings_in_one_group

import gradwire.train.engines.native
import gradwire.train.feed
import gradwire.train.model
from gradwire.train import run as train_run

SLEEP_SECONDS = 0.15
# An hour and more is what the meter can tell from a slow step.
JUMP_SECONDS = 7200.0
# 10 Mbit/s, of gradients in one direction.
LINK_BYTES_PER_SECOND = 1.25e6


def slowed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` behind a sleep."""

    def call(*arguments: Any, **options: Any) -> Any:
        time.sleep(SLEEP_SECONDS)
        return function(*arguments, **options)

    return call


class Throttle:
    """A DDP hook that averages as DDP does, over a link of LINK_BYTES_PER_SECOND that carries one bucket at a time."""

    def __init__(self) -> None:
        self._free_at = 0.0

    def average(self, bucket: Any) -> Any:
        buffer = bucket.buffer()
        size = torch.distributed.get_world_size()
        sent = 2 * (size - 1) / size * buffer.numel() * buffer.element_size()
        self._free_at = max(self._free_at, time.perf_counter()) + sent / LINK_BYTES_PER_SECOND
        averaged: Any = torch.futures.Future()
        work = torch.distributed.all_reduce(buffer, async_op=True)
        threading.Thread(target=self._arrive, args=(work, buffer, size, self._free_at, averaged)).start()
        return averaged

    def _arrive(self, work: Any, buffer: Any, size: int, arrives_at: float, averaged: Any) -> None:
        work.wait()
        time.sleep(max(0.0, arrives_at - time.perf_counter()))
        averaged.set_result(buffer.div_(size))


def throttled(register: Callable[..., Any]) -> Callable[..., Any]:
    """Return `register_communication` with the hook; only for plain DDP, which has none of its own."""

    def call(model: Any, recipe: Any) -> Any:
        # A lambda, since DDP looks at a function's annotations and these are strings.
        model.register_comm_hook(Throttle(), lambda throttle, bucket: throttle.average(bucket))
        return register(model, recipe)

    return call


class JumpingClock:
    """A clock that is put forward by two hours in the middle of the step after the `steps`th, and stays so."""

    def __init__(self, steps: int) -> None:
        self._steps_left = steps

    def __call__(self) -> float:
        return time.perf_counter() + (JUMP_SECONDS if self._steps_left < 0 else 0.0)

    def count(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function`, which is called once in each step, with this clock counting its calls."""

        def call(*arguments: Any, **options: Any) -> Any:
            self._steps_left -= 1
            return function(*arguments, **options)

        return call


@contextmanager
def planted(cause: str, rank: int) -> Iterator[None]:
    """Slow down what `cause` names: reading samples on every rank, forward passes on the last one, or the link.

    Or put the clock of the last rank forward.
    """
    feed, model, native, run = gradwire.train.feed, gradwire.train.model, gradwire.train.engines.native, train_run
    cut, forward, register = feed.cut, model.LossModel.forward, native.register_communication
    train, stopwatch = run.train, run.Stopwatch
    if cause == "clock-jump" and rank == torch.distributed.get_world_size() - 1:
        clock = JumpingClock(steps=5)
        model.LossModel.forward = clock.count(forward)
        run.train = partial(train, clock=clock)
        run.Stopwatch = lambda device, _: stopwatch(device, clock)
    if cause == "slow-loader":
        feed.cut = slowed(cut)
    if cause == "straggler" and rank == torch.distributed.get_world_size() - 1:
        model.LossModel.forward = slowed(forward)
    if cause == "slow-link":
        native.register_communication = throttled(register)
    yield
    feed.cut, model.LossModel.forward, native.register_communication = cut, forward, register
    run.train, run.Stopwatch = train, stopwatch


for setting, device in settings_in_one_group():
    with planted(setting.folder.name, setting.place.rank):
        train_run.train_in_group(setting, device, setting.folder)
