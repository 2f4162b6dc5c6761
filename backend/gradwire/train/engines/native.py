"""Plain torch: one process, DistributedDataParallel, or fully_shard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from gradwire.documents.measurement_schema import Buckets
from gradwire.documents.plan_schema import Plan
from gradwire.documents.recipe_schema import Recipe
from gradwire.errors import UsageError
from gradwire.plan import pins_memory, shard_group_size
from gradwire.train.buckets import settle_buckets
from gradwire.train.clip import clip_gradients
from gradwire.train.communication import GradientCommunication
from gradwire.train.compilation import compile_model, compiled_notes
from gradwire.train.ddp import ddp_options, explained, micro_step_context, register_communication
from gradwire.train.engines.engine import MicroBatch, StepResult
from gradwire.train.model import LossModel, build_model, compute_dtype, weights_dtype
from gradwire.train.number_format import DTYPES
from gradwire.train.optimizer import build_optimizer
from gradwire.train.passes import example_passes, settling_pass
from gradwire.train.schedule import ScheduledLearningRate, learning_rate_of
from gradwire.train.setting import Setting
from gradwire.train.split_state import SplitTrainingState
from gradwire.train.stopwatch import Lap
from gradwire.train.training_state import State, TrainingState


class NativeEngine:
    """Trains a whole model on each data-parallel rank; `model` is a LossModel, wrapped as the strategy asks."""

    counts_samples = True

    def __init__(
        self,
        setting: Setting,
        model: Any,
        lap: Lap,
        *,
        notes: Sequence[str] = (),
        communication: GradientCommunication | None = None,
        buckets: Buckets | None = None,
        settle: Callable[[], None] | None = None,
    ) -> None:
        self._lap = lap
        self._recipe = setting.plan.recipe
        self._model = model
        self._is_ddp = isinstance(model, DistributedDataParallel)
        self._parameters = list(model.parameters())
        self._optimizer = build_optimizer(self._parameters, self._recipe.training)
        self._schedule = ScheduledLearningRate(self._optimizer, self._recipe.training)
        self._scaler = torch.amp.GradScaler(
            setting.plan.world.device, enabled=self._recipe.training.precision == "fp16-mixed"
        )
        self._data_parallel_size = setting.plan.batch.data_parallel_size
        self._steps_taken = 0
        self.data_parallel_rank = setting.place.rank
        self.notes = (*notes, *compiled_notes(model, self._recipe.training))
        self.communication = communication
        self.buckets = buckets
        self.lone_step: Callable[[], AbstractContextManager[Any]] | None = model.no_sync if self._is_ddp else None
        self.state: State = self._split_state() if settle is None else self._training_state(settle)

    def step(self, micro_batches: Sequence[MicroBatch]) -> StepResult:
        """Accumulate over the micro-batches, clip, and update; see Engine."""
        losses = []
        for micro_step, batch in enumerate(micro_batches):
            with self._reduction(micro_step), explained(self.communication):
                loss = self._model(batch.tokens, batch.labels) * (batch.weight / len(micro_batches))
                self._scaler.scale(loss).backward()
            self._lap("passes")
            losses.append(loss.detach())
        self._scaler.unscale_(self._optimizer)
        gradient_norm = clip_gradients(self._parameters, self._recipe.training.gradient_clip)
        learning_rate = learning_rate_of(self._optimizer)
        scale = self._scaler.get_scale()
        self._scaler.step(self._optimizer)
        self._scaler.update()
        # The scale falls where the step was skipped.
        if self._scaler.get_scale() >= scale:
            self._schedule.step()
        self._optimizer.zero_grad()
        self._lap("optimizer")
        if self.communication is not None:
            self.communication.step_ended()
        self._steps_taken += 1
        return StepResult(
            loss_share=torch.stack(losses).sum() / self._data_parallel_size,
            gradient_norm=gradient_norm,
            learning_rate=learning_rate,
            sequences=sum(len(batch.tokens) for batch in micro_batches) * self._data_parallel_size,
        )

    def _training_state(self, settle: Callable[[], None]) -> TrainingState:
        return TrainingState(
            model=self._model.module if self._is_ddp else self._model,
            optimizer=self._optimizer,
            schedule=self._schedule,
            scaler=self._scaler,
            communication=self.communication,
            settle=settle,
            ranks_differ=self._recipe.communication.compression.method == "local-sgd",
            go_on_from=self._go_on_from,
        )

    def _split_state(self) -> SplitTrainingState:
        names = self._model.stage.whole_names()
        return SplitTrainingState(
            parameters=list(zip(names, self._parameters, strict=True)),
            optimizer=self._optimizer,
            schedule=self._schedule,
            scaler=self._scaler,
            communication=None,
            is_copy=False,
            go_on_from=self._go_on_from,
        )

    def _go_on_from(self, step: int) -> None:
        self._steps_taken = step

    def _reduction(self, micro_step: int) -> AbstractContextManager[Any]:
        # fully_shard reduces in every micro-step: gradients that wait for the last one would be whole, not sharded.
        if not self._is_ddp:
            return nullcontext()
        return micro_step_context(self._model, self._recipe, step=self._steps_taken, micro_step=micro_step)


def build(setting: Setting, device: Any, lap: Lap) -> NativeEngine:
    """Return the engine of a native plan; raises UsageError where the strategy is another backend's."""
    recipe = setting.plan.recipe
    strategy = recipe.parallelism.data.strategy
    autocast_dtype = autocast_for(recipe) if strategy == "ddp" else None
    stage = build_model(setting.plan, setting.model, autocast_dtype=autocast_dtype)
    model = LossModel(stage).to(device=device, dtype=weights_dtype(recipe.training))
    compile_model(model, recipe.training)
    match strategy:
        case "ddp" if setting.plan.batch.data_parallel_size == 1:
            note = "one data-parallel rank: DDP and compression have nothing to do"
            return NativeEngine(setting, model, lap, notes=[note], settle=lambda: None)
        case "ddp":
            buckets = settle_buckets(
                model,
                recipe,
                process_group=torch.distributed.group.WORLD,
                device=device,
                passes=example_passes(model, setting, device),
            )
            wrapped = DistributedDataParallel(model, **ddp_options(recipe.communication.overlap, buckets))
            communication = register_communication(wrapped, recipe)
            settle = settling_pass(wrapped, setting, device)
            return NativeEngine(setting, wrapped, lap, communication=communication, buckets=buckets, settle=settle)
        case "fsdp":
            mesh, notes = data_mesh(setting.plan, device)
            shard(model, stage.blocks, mesh, setting.plan)
            return NativeEngine(setting, model, lap, notes=notes)
        case _:
            raise UsageError(
                f"parallelism.data.strategy: {strategy} is DeepSpeed's; use --backend deepspeed, or fsdp for native"
            )


def data_mesh(plan: Plan, device: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the mesh that fully_shard works on and notes on it: copies x shards where there are several copies.

    Ranks of one group are neighbours, mostly on one machine, so that only averaged gradients travel far.
    """
    ranks, group = plan.batch.data_parallel_size, shard_group_size(plan)
    if group == ranks:
        return init_device_mesh(device.type, (ranks,), mesh_dim_names=("data",)), ()
    mesh = init_device_mesh(device.type, (ranks // group, group), mesh_dim_names=("copies", "shards"))
    return mesh, (f"hybrid sharding: {ranks // group} copies of the model, each over {group} rank(s)",)


def shard(model: Any, blocks: Any, mesh: Any, plan: Plan) -> None:
    """Shard `model` in place over `mesh`, each block a unit of its own unless the recipe makes the model one.

    A mesh of two dimensions is copies x shards: parameters are gathered over the second, gradients averaged over both.
    """
    recipe, fsdp = plan.recipe, plan.recipe.parallelism.data.fsdp
    mixed = recipe.training.precision in ("bf16-mixed", "fp16-mixed")
    asked = recipe.communication.dtype
    policy = MixedPrecisionPolicy(
        param_dtype=compute_dtype(recipe.training) if mixed else None,
        reduce_dtype=DTYPES[asked] if asked else torch.float32 if mixed else None,
    )
    options = {
        "mesh": mesh,
        "mp_policy": policy,
        "offload_policy": (
            CPUOffloadPolicy(pin_memory=pins_memory(plan))
            if recipe.parallelism.data.offload.parameters == "cpu"
            else OffloadPolicy()
        ),
    }
    by_block = fsdp.wrap == "blocks"
    for block in blocks if by_block else ():
        fully_shard(block, reshard_after_forward=fsdp.reshard_after_forward, **options)
    # What is left beside the blocks is needed last before the backward pass and first in it: torch keeps it then.
    fully_shard(model, reshard_after_forward=None if by_block else fsdp.reshard_after_forward, **options)


def autocast_for(recipe: Recipe) -> Any:
    """Return the type that autocast computes in, None where weights are in the compute type already."""
    return compute_dtype(recipe.training) if recipe.training.precision.endswith("-mixed") else None
