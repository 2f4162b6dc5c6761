"""DeepSpeed's own engine, with the deepspeed.json beside the plan as the truth."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import deepspeed
import torch

from gradwire.artifact import DEEPSPEED_FILE
from gradwire.documents.plan_schema import Plan
from gradwire.documents.recipe_schema import Training
from gradwire.errors import EnvironmentNotFit, UsageError
from gradwire.reading import read_regular
from gradwire.train.clip import gradient_norm
from gradwire.train.compilation import compile_model, compile_options, compiled_notes
from gradwire.train.deepspeed_config import check_deepspeed_config, file_has_the_learning_rates
from gradwire.train.engines.engine import MicroBatch, StepResult
from gradwire.train.model import LossModel, build_model, weights_dtype
from gradwire.train.schedule import ScheduledLearningRate
from gradwire.train.setting import Setting
from gradwire.train.stopwatch import Lap

# What is longer is cut, and then no JSON.
_LARGEST_BYTES = 4 * 2**20


class DeepSpeedEngine:
    """Trains a model that `deepspeed.initialize` wrapped; accumulation, clipping and the optimizer are DeepSpeed's."""

    counts_samples = True
    communication = None
    buckets = None
    state = None

    def __init__(self, setting: Setting, engine: Any, lap: Lap) -> None:
        self._lap = lap
        self._engine = engine
        self._world_size = setting.plan.world.world_size
        self.data_parallel_rank = setting.place.rank
        self.notes: Sequence[str] = (
            f"ZeRO stage {engine.zero_optimization_stage()}",
            *compiled_notes(engine.module, setting.plan.recipe.training),
        )
        # Higher stages send gradients to where their shards are; no step can do without.
        self.lone_step: Callable[[], AbstractContextManager[None]] | None = (
            self._without_reduction if engine.zero_optimization_stage() == 0 else None
        )

    def step(self, micro_batches: Sequence[MicroBatch]) -> StepResult:
        """Run the micro-batches; DeepSpeed updates after the last one. See Engine."""
        losses = []
        norm = None
        learning_rate = float(self._engine.get_lr()[0])
        sequences_before = self._engine.global_samples
        for batch in micro_batches:
            loss = self._engine(batch.tokens, batch.labels) * batch.weight
            self._engine.backward(loss)
            self._lap("passes")
            if self._engine.is_gradient_accumulation_boundary():
                norm = self._norm_without_zero()
            self._engine.step()
            self._lap("optimizer")
            losses.append(loss.detach())
        return StepResult(
            loss_share=torch.stack(losses).mean() / self._world_size,
            gradient_norm=self._engine.get_global_grad_norm() if norm is None else norm,
            learning_rate=learning_rate,
            sequences=self._engine.global_samples - sequences_before,
        )

    def _norm_without_zero(self) -> Any:
        """Return the norm of the averaged gradient where DeepSpeed leaves the optimizer to torch and computes none."""
        if self._engine.zero_optimization_stage():
            return None
        scaler = self._engine.torch_autocast_z0_gradscaler
        return gradient_norm(list(self._engine.module.parameters())) / (scaler.get_scale() if scaler else 1.0)

    @contextmanager
    def _without_reduction(self) -> Iterator[None]:
        # Not DeepSpeed's no_sync, in which no step may end.
        self._engine.enable_backward_allreduce = False
        try:
            yield
        finally:
            self._engine.enable_backward_allreduce = True


def build(setting: Setting, device: Any, lap: Lap) -> DeepSpeedEngine:
    """Return the engine of a DeepSpeed plan; the process group exists already.

    Raises UsageError where deepspeed.json is missing or contradicts the plan, EnvironmentNotFit where DeepSpeed
    believes in another world.
    """
    # At stage 0 DeepSpeed has no pure-bf16 mode: there the model's own type makes it one.
    dtype = weights_dtype(setting.plan.recipe.training)
    model = LossModel(build_model(setting.plan, setting.model)).to(device=device, dtype=dtype)
    config = _read_config(setting.folder)
    check_deepspeed_config(setting.plan, str(setting.folder / DEEPSPEED_FILE), has_optimizer=True)
    training = setting.plan.recipe.training
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=list(model.parameters()),
        config=config,
        # Where DeepSpeed has no such scheduler; else the file's own is in force.
        lr_scheduler=None
        if "scheduler" in setting.plan.recipe.backends.deepspeed or file_has_the_learning_rates(training, config)
        else lambda optimizer: _scheduled(optimizer, training),
    )
    _check_world(setting.plan, engine)
    _compile(engine, training)
    return DeepSpeedEngine(setting, engine, lap)


def _compile(engine: Any, training: Training) -> None:
    if not training.compile:
        return
    if training.compile_regional:
        compile_model(engine.module, training)
        return
    # DeepSpeed's own call, which reads the file's section on DeepCompile.
    options = compile_options(training)
    engine.compile(backend=options.pop("backend"), compile_kwargs=options)


def _scheduled(optimizer: Any, training: Training) -> ScheduledLearningRate:
    for group in optimizer.param_groups:
        # The file's is what its own scheduler begins with.
        group["lr"] = training.learning_rate
    return ScheduledLearningRate(optimizer, training)


def _read_config(folder: Path) -> Any:
    file = folder / DEEPSPEED_FILE
    try:
        return json.loads(read_regular(file, max_bytes=_LARGEST_BYTES))
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; `gradwire lower --backend deepspeed` writes it") from None
    except ValueError as error:
        raise UsageError(f"{file}: not JSON: {error}") from None


def _check_world(plan: Plan, engine: Any) -> None:
    if engine.dp_world_size != plan.world.world_size:
        raise EnvironmentNotFit(
            f"the plan is for {plan.world.world_size} processes, but DeepSpeed believes in {engine.dp_world_size}"
        )
