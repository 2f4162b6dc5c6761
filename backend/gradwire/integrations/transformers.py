"""The throughput meter as a callback of `transformers.Trainer`: times steps, counts tokens, adds to its log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from accelerate.state import AcceleratorState
from transformers import TrainerCallback

from gradwire.errors import UsageError
from gradwire.integrations.device import DeviceMeter, Reading
from gradwire.integrations.figures import Flops, figures
from gradwire.integrations.pass_counter import PassCounter
from gradwire.measure.meter import ThroughputMeter


def meter_trainer(trainer: Any, *, warmup_steps: int = 3, flops: Flops | None = None) -> GradwireCallback:
    """Put a GradwireCallback before `trainer`'s other callbacks, so that they log its figures; return it.

    Passed as one of the Trainer's `callbacks` instead, it comes after TensorBoard's and the others', and its figures
    reach `trainer.state.log_history` and the callbacks after it only.
    """
    callback = GradwireCallback(warmup_steps=warmup_steps, flops=flops)
    trainer.callback_handler.callbacks.insert(0, callback)
    return callback


class GradwireCallback(TrainerCallback):  # type: ignore[misc]
    """Meters a Trainer run.

    A step lasts from the end of the one before it, so that waiting for data counts; evaluation and checkpoints do not.
    Tokens are what the model was given in training passes: in `input_ids`, those that `attention_mask` keeps (all
    without one); slots count padding too. The first `warmup_steps` are left out, also after a resume from a checkpoint.
    Ranks that share a batch (tensor, context and sequence parallelism through Accelerate) count it once.

    Each of the Trainer's training logs gets the rates of `gradwire.integrations.figures` over the steps since the last
    one. The last log has those of the whole run, and `throughput/excluded_seconds`, of evaluation and checkpoints.
    """

    def __init__(
        self,
        *,
        warmup_steps: int = 3,
        flops: Flops | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._warmup_steps = warmup_steps
        self._flops = flops
        self._clock = clock
        self._meter: DeviceMeter | None = None
        self._counter: PassCounter | None = None
        self._boundary: Reading = None
        self._logged_steps = 0

    @property
    def meter(self) -> ThroughputMeter:
        """This process's meter, with all finished steps; raises UsageError before training began."""
        if self._meter is None:
            raise UsageError("training has not begun, so nothing was metered")
        return self._meter.result()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the meter, anew for each call of `train`."""
        self._logged_steps = 0
        if self._counter is not None:
            # The last call ended with an error, as where the Trainer looks for a batch size that fits.
            self._counter.close()
        # The Trainer's Accelerator made it.
        self._counter = PassCounter(kwargs["model"], mesh=AcceleratorState().device_mesh)
        self._meter = DeviceMeter(args.device, warmup_steps=self._warmup_steps, clock=self._clock)
        self._boundary = self._meter.read()
        self._meter.start(at=self._boundary)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End a step."""
        if self._meter is None or self._counter is None:
            return
        self._boundary = self._meter.read()
        counted = self._counter.take()
        # No `or` here: it would wait for a count that is on the device.
        tokens = 0 if counted.tokens is None else counted.tokens
        self._meter.step(samples=counted.samples or 0, tokens=tokens, slots=counted.slots or 0, at=self._boundary)

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
            found = figures(self.meter, first_step=self._logged_steps, device=args.device, flops=self._flops)
            self._logged_steps = self.meter.steps
        elif "train_runtime" in logs:
            found = figures(self.meter, device=args.device, flops=self._flops)
            found["throughput/excluded_seconds"] = self.meter.paused_seconds
        else:
            return
        logs.update(found)
        if state.log_history:
            state.log_history[-1].update(found)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop counting."""
        if self._counter is not None:
            self._counter.close()

    def _exclude(self) -> None:
        # Called afterwards: training ended at the last boundary.
        if self._meter is None or self._counter is None or self._counter.is_closed:
            return
        self._meter.pause(at=self._boundary)
        self._boundary = self._meter.read()
        self._meter.resume(at=self._boundary)
