"""Hugging Face Accelerate: DDP, FSDP, or DeepSpeed below it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from gradwire.documents.measurement_schema import Buckets
from gradwire.train.accelerator import RecipeAccelerator, cast_weights
from gradwire.train.accelerator_start import build_accelerator
from gradwire.train.communication import GradientCommunication
from gradwire.train.compilation import compiled_notes
from gradwire.train.ddp import explained
from gradwire.train.engines.engine import MicroBatch, StepResult
from gradwire.train.model import LossModel, build_model
from gradwire.train.passes import Passes, example_passes
from gradwire.train.schedule import learning_rate_of
from gradwire.train.setting import Setting
from gradwire.train.stopwatch import Lap


class AccelerateEngine:
    """Trains a model that Accelerate prepared; the samples are Gradwire's, so Accelerate does not share them out."""

    counts_samples = True
    state = None

    def __init__(self, setting: Setting, run: RecipeAccelerator, model: Any, optimizer: Any, lap: Lap) -> None:
        self._lap = lap
        self._run = run
        self._model, self._optimizer = model, optimizer
        self._world_size = setting.plan.world.world_size
        # Sequences since the last optimizer step.
        self._pending = 0
        self.data_parallel_rank = setting.place.rank
        self.notes: Sequence[str] = (
            f"Accelerate's distributed type: {run.accelerator.distributed_type.value}",
            *compiled_notes(model, setting.plan.recipe.training),
        )
        # Compiled as one, DDP is inside another module.
        self.lone_step: Callable[[], AbstractContextManager[Any]] | None = (
            model.no_sync if hasattr(model, "reducer") else None
        )

    @property
    def communication(self) -> GradientCommunication | None:
        """What averages gradients under DDP; see Engine."""
        return next(iter(self._run.communications), None)

    @property
    def buckets(self) -> Buckets | None:
        """In which sizes DDP averages them; see Engine."""
        return self._run.buckets

    def step(self, micro_batches: Sequence[MicroBatch]) -> StepResult:
        """Accumulate, clip and update through Accelerate; see Engine."""
        losses = []
        gradient_norm, learning_rate, sequences = None, 0.0, 0
        for batch in micro_batches:
            with self._run.accumulate(self._model):
                learning_rate = learning_rate_of(self._optimizer)
                loss = self._model(batch.tokens, batch.labels) * batch.weight
                with explained(self.communication):
                    self._run.accelerator.backward(loss)
                self._lap("passes")
                gradient_norm = self._run.clip(self._model)
                self._optimizer.step()
                self._optimizer.zero_grad()
                self._lap("optimizer")
            losses.append(loss.detach())
            self._pending += len(batch.tokens) * self._world_size
            if self._run.accelerator.sync_gradients:
                sequences, self._pending = self._pending, 0
        return StepResult(
            loss_share=torch.stack(losses).mean() / self._world_size,
            gradient_norm=gradient_norm,
            learning_rate=learning_rate,
            sequences=sequences,
        )


def build(setting: Setting, device: Any, lap: Lap) -> AccelerateEngine:
    """Return the engine of an Accelerate plan; raises EnvironmentNotFit where Accelerate cannot run it here."""
    # Before Accelerate knows of ZeRO 3: transformers would shard the weights while it makes them.
    model = LossModel(build_model(setting.plan, setting.model))
    run = build_accelerator(setting.plan, setting.folder)
    model = cast_weights(model, run).to(device)
    run.settle_buckets(model, passes=_passes(run, model, setting, device))
    model, optimizer = run.accelerator.prepare(model, run.optimizer(model.parameters()))
    return AccelerateEngine(setting, run, model, optimizer, lap)


def _passes(run: RecipeAccelerator, model: Any, setting: Setting, device: Any) -> Passes | None:
    passes = example_passes(model, setting, device)
    if passes is None:
        return None

    def in_its_precision() -> Any:
        with run.accelerator.autocast():
            return passes()

    return in_its_precision
