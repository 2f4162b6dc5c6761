"""The throughput meter as a Lightning callback: times steps, counts tokens, adds to what the loggers get."""

from __future__ import annotations

import functools
import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

from gradwire.errors import UsageError
from gradwire.integrations.counts import Counts, count_of
from gradwire.integrations.device import DeviceMeter
from gradwire.integrations.figures import Flops, figures
from gradwire.integrations.parallel import counts_here
from gradwire.measure.meter import ThroughputMeter

# The same code under two names; the script's own import says which one its Trainer is from.
_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
_package = next((name for name in _PACKAGES if name in sys.modules), _PACKAGES[-1])
Callback: Any = importlib.import_module(_package).Callback


class GradwireCallback(Callback):  # type: ignore[misc]
    """Meters `Trainer.fit`: `Trainer(callbacks=[GradwireCallback()])`.

    A step is an optimizer step, from the end of the one before it, so that waiting for data counts; validation and
    checkpoints do not. Tokens are those of the training batches, told as `gradwire.integrations.counts` does;
    `count_batch` tells what it cannot. The first `warmup_steps` are left out, also after a resume from a checkpoint,
    which holds the steps before it; where another number of processes goes on, the earlier steps are left out, since
    rates of both together would be of neither. Ranks that share a batch along the strategy's device mesh count it once.

    Every `log_every_n_steps` of the Trainer the loggers get the rates of `gradwire.integrations.figures` since the last
    time, and at the end those of the whole run, with `throughput/excluded_seconds`.
    """

    def __init__(
        self,
        *,
        warmup_steps: int = 3,
        count_batch: Callable[[Any], Counts] | None = None,
        flops: Flops | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._warmup_steps = warmup_steps
        self._count_batch = count_batch or _count_batch
        self._flops = flops
        self._clock = clock
        self._meter: DeviceMeter | None = None
        self._earlier: dict[str, Any] | None = None
        self._is_training = False
        self._pauses = 0
        self._world_size = 1
        self._steps = 0
        self._logged_steps = 0
        self._samples: int = 0
        self._tokens: Any = 0
        self._slots: int = 0

    @property
    def meter(self) -> ThroughputMeter:
        """This process's meter, with all finished steps; raises UsageError before training began."""
        if self._meter is None:
            raise UsageError("training has not begun, so nothing was metered")
        return self._meter.result()

    def state_dict(self) -> dict[str, Any]:
        """Return the finished steps, which go into Lightning's checkpoint."""
        return {} if self._meter is None else {**self.meter.state_dict(), "world_size": self._world_size}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the steps of a checkpoint, to go on after them."""
        self._earlier = state_dict or None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Start the meter."""
        self._meter = DeviceMeter(
            trainer.strategy.root_device,
            warmup_steps=self._warmup_steps,
            counts=counts_here(getattr(trainer.strategy, "device_mesh", None)),
            clock=self._clock,
        )
        self._world_size, self._pauses = trainer.world_size, 0
        self._samples, self._tokens, self._slots = 0, 0, 0
        if self._earlier is not None and self._earlier.get("world_size", self._world_size) == self._world_size:
            self._meter.load_state_dict(self._earlier)
        self._earlier = None
        self._steps = trainer.global_step
        self._logged_steps = self.meter.steps
        # Lightning says when a checkpoint begins and not when it is written.
        trainer.save_checkpoint = self._excluded(trainer.save_checkpoint)
        self._is_training = True
        self._meter.start()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Count a batch."""
        counted = self._count_batch(batch)
        self._samples += counted.samples or 0
        self._slots += counted.slots or 0
        self._tokens = self._tokens + (0 if counted.tokens is None else counted.tokens)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """End a step, where the batch ended one."""
        if self._meter is None or trainer.global_step == self._steps:
            return
        self._steps = trainer.global_step
        self._meter.step(samples=self._samples, tokens=self._tokens, slots=self._slots)
        self._samples, self._tokens, self._slots = 0, 0, 0
        if trainer.log_every_n_steps and self._steps % trainer.log_every_n_steps == 0:
            found = figures(
                self.meter, first_step=self._logged_steps, device=trainer.strategy.root_device, flops=self._flops
            )
            self._logged_steps = self.meter.steps
            _log(trainer, found)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to leave out a validation."""
        self._pause()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """End leaving out a validation."""
        self._resume()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Log the whole run."""
        if self._meter is None:
            return
        self._is_training = False
        # Uncovers the class's own.
        del trainer.save_checkpoint
        found = figures(self.meter, device=trainer.strategy.root_device, flops=self._flops)
        found["throughput/excluded_seconds"] = self.meter.paused_seconds
        _log(trainer, found)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Stop, with the steps so far."""
        if self._is_training:
            self._is_training = False
            del trainer.save_checkpoint

    def _excluded(self, save: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(save)
        def excluded(*arguments: Any, **named: Any) -> Any:
            self._pause()
            try:
                return save(*arguments, **named)
            finally:
                self._resume()

        return excluded

    def _pause(self) -> None:
        """Stop the clock; what is left out may be part of what is left out, as a checkpoint within a validation."""
        if self._meter is not None and self._is_training:
            self._pauses += 1
            if self._pauses == 1:
                self._meter.pause()

    def _resume(self) -> None:
        if self._meter is not None and self._is_training:
            self._pauses -= 1
            if self._pauses == 0:
                self._meter.resume()


def _count_batch(batch: Any) -> Counts:
    return count_of([batch], {})


def _log(trainer: Any, found: dict[str, float]) -> None:
    for logger in trainer.loggers:
        # Of rank 0 alone; the others' do nothing.
        logger.log_metrics(found, step=trainer.global_step)
