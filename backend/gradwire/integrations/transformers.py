"""The throughput meter as a callback of `transformers.Trainer`: times steps, counts tokens, adds to its log."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import TrainerCallback

from gradwire.errors import UsageError
from gradwire.integrations.device import DeviceMeter, Reading
from gradwire.measure.meter import ThroughputMeter


def meter_trainer(trainer: Any, *, warmup_steps: int = 3) -> GradwireCallback:
    """Put a GradwireCallback before `trainer`'s other callbacks, so that they log its figures; return it.

    Passed as one of the Trainer's `callbacks` instead, it comes after TensorBoard's and the others', and its figures
    reach `trainer.state.log_history` and the callbacks after it only.
    """
    callback = GradwireCallback(warmup_steps=warmup_steps)
    trainer.callback_handler.callbacks.insert(0, callback)
    return callback


class GradwireCallback(TrainerCallback):  # type: ignore[misc]
    """Meters a Trainer run.

    A step lasts from the end of the one before it, so that waiting for data counts; evaluation and checkpoints do not.
    Tokens are what the model was given in training passes: in `input_ids`, those that `attention_mask` keeps (all
    without one); slots count padding too. The first `warmup_steps` are left out.

    Each of the Trainer's training logs gets, over the steps since the last one:

    * `throughput/samples_per_sec`, `throughput/tokens_per_sec`, `throughput/slots_per_sec`: over all processes
    * `throughput/device/samples_per_sec`, `throughput/device/tokens_per_sec`: those divided by the processes

    The last log has the same over the whole run, and `throughput/excluded_seconds`, spent on evaluation and
    checkpoints. Each process is taken for a data-parallel rank with batches of its own.
    """

    def __init__(self, *, warmup_steps: int = 3, clock: Callable[[], float] = time.perf_counter) -> None:
        self._warmup_steps = warmup_steps
        self._clock = clock
        self._meter: DeviceMeter | None = None
        self._hook: Any = None
        self._boundary: Reading = None
        self._logged_steps = warmup_steps
        self._samples = 0
        self._tokens: Any = 0
        self._slots = 0
        self._slots_each: list[int] = []

    @property
    def meter(self) -> ThroughputMeter:
        """This process's meter, with all finished steps; raises UsageError before training began."""
        if self._meter is None:
            raise UsageError("training has not begun, so nothing was metered")
        return self._meter.result()

    @property
    def slots(self) -> tuple[int, ...]:
        """Tokens of every finished step on this process, padding included."""
        return tuple(self._slots_each)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the meter, anew for each call of `train`."""
        self._slots_each.clear()
        self._logged_steps = self._warmup_steps
        self._forget_counts()
        self._hook = kwargs["model"].register_forward_pre_hook(self._count, with_kwargs=True)
        self._meter = DeviceMeter(args.device, warmup_steps=self._warmup_steps, clock=self._clock)
        self._boundary = self._meter.read()
        self._meter.start(at=self._boundary)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End a step."""
        if self._meter is None:
            return
        self._boundary = self._meter.read()
        self._meter.step(samples=self._samples, tokens=self._tokens, at=self._boundary)
        self._slots_each.append(self._slots)
        self._forget_counts()

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave out the evaluation that has just ended."""
        self._exclude()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave out the checkpoint that was just written."""
        self._exclude()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Add the figures to a log of training, and to the Trainer's history of logs."""
        if self._meter is None or logs is None:
            return
        if "loss" in logs:
            figures = self._figures(args.device, first_step=self._logged_steps)
            self._logged_steps = max(self._logged_steps, len(self._slots_each))
        elif "train_runtime" in logs:
            figures = self._figures(args.device, first_step=self._warmup_steps)
            figures["throughput/excluded_seconds"] = self.meter.paused_seconds
        else:
            return
        logs.update(figures)
        if state.log_history:
            state.log_history[-1].update(figures)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop counting."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _count(self, model: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        given = named.get("input_ids", named.get("inputs_embeds", arguments[0] if arguments else None))
        if not model.training or given is None:
            return
        slots = given.shape[:2].numel()
        mask = named.get("attention_mask")
        self._samples += given.shape[0]
        self._slots += slots
        # Left on the device: reading it here would wait for the device.
        self._tokens = self._tokens + (mask.sum() if mask is not None and mask.dim() == 2 else slots)

    def _forget_counts(self) -> None:
        self._samples, self._tokens, self._slots = 0, 0, 0

    def _exclude(self) -> None:
        # Called afterwards: training ended at the last boundary.
        if self._meter is None or self._hook is None:
            return
        self._meter.pause(at=self._boundary)
        self._boundary = self._meter.read()
        self._meter.resume(at=self._boundary)

    def _figures(self, device: Any, *, first_step: int) -> dict[str, float]:
        meter = self.meter
        mine = [
            math.fsum(meter.step_seconds[first_step:]),
            sum(meter.samples[first_step:]),
            sum(meter.tokens[first_step:]),
            sum(self._slots_each[first_step:]),
        ]
        everyone = _everyones(mine, device)
        seconds = max(process[0] for process in everyone)
        if seconds <= 0:
            return {}
        samples, tokens, slots = (sum(process[place] for process in everyone) / seconds for place in (1, 2, 3))
        return {
            "throughput/samples_per_sec": samples,
            "throughput/tokens_per_sec": tokens,
            "throughput/slots_per_sec": slots,
            "throughput/device/samples_per_sec": samples / len(everyone),
            "throughput/device/tokens_per_sec": tokens / len(everyone),
        }


def _everyones(mine: list[float], device: Any) -> list[list[float]]:
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return [mine]
    sent = torch.tensor(mine, dtype=torch.float64, device=device)
    received = [torch.empty_like(sent) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(received, sent)
    return [process.tolist() for process in received]
