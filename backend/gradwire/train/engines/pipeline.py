"""Torch's pipeline schedules: layers split over stages, each batch cut into chunks, data parallelism on every stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)
from torch.nn.parallel import DistributedDataParallel

from gradwire.documents.plan_schema import Plan, SettledPipeline
from gradwire.documents.recipe_schema import Model
from gradwire.errors import UsageError
from gradwire.recipe.broken import SINGLE_STAGE_SCHEDULES
from gradwire.recipe.compression_options import PIPELINED_METHODS
from gradwire.train.clip import clip_gradients
from gradwire.train.communication import GradientCommunication
from gradwire.train.compilation import compile_model
from gradwire.train.ddp import ddp_options, failure_named, register_communication
from gradwire.train.engines.engine import MicroBatch, StepResult
from gradwire.train.engines.native import autocast_for, shard
from gradwire.train.engines.pipeline_stage import ChunkLoss, TimedStage
from gradwire.train.gradient_average import average_gradients
from gradwire.train.model import build_stages, weights_dtype
from gradwire.train.optimizer import build_optimizer
from gradwire.train.schedule import ScheduledLearningRate, learning_rate_of
from gradwire.train.setting import Setting
from gradwire.train.split_state import SplitTrainingState
from gradwire.train.stopwatch import Lap

_SCHEDULES = {
    "gpipe": ScheduleGPipe,
    "1f1b": Schedule1F1B,
    "interleaved-1f1b": ScheduleInterleaved1F1B,
    "interleaved-zero-bubble": ScheduleInterleavedZeroBubble,
    "zbv": ScheduleZBVZeroBubble,
}


class PipelineEngine:
    """Trains one rank's stages of a model.

    Ranks form a mesh of pipeline ranks x data-parallel ranks, the former being the slower index: neighbouring ranks,
    mostly on one machine, hold the same stages and average their gradients, and only activations travel far. `stages`
    are those that this rank holds, by their index.
    """

    buckets = None
    # The schedule itself says when a stage averages its gradients.
    lone_step = None

    def __init__(
        self,
        plan: Plan,
        pipeline: SettledPipeline,
        mesh: Any,
        schedule: Any,
        chunk_loss: ChunkLoss,
        stages: Mapping[int, TimedStage],
        communication: GradientCommunication | None,
        lap: Lap,
    ) -> None:
        self._lap = lap
        self.communication = communication
        self._stages = list(stages.values())
        self._training = plan.recipe.training
        self._data_parallel_size = plan.batch.data_parallel_size
        self._schedule = schedule
        self._chunk_loss = chunk_loss
        modules = [stage.submod for stage in self._stages]
        self._parameters = [parameter for module in modules for parameter in module.parameters()]
        self._optimizer = build_optimizer(self._parameters, plan.recipe.training)
        self._learning_rate = ScheduledLearningRate(self._optimizer, plan.recipe.training)
        self._stage_group, self._data_group = mesh.get_group("stage"), mesh.get_group("data")
        self._averages_last = _averages_last(plan, pipeline)
        self._is_first, self._is_last = 0 in stages, pipeline.stages - 1 in stages
        self.data_parallel_rank: int = mesh.get_local_rank("data")
        self.counts_samples = self._is_first
        self.notes: Sequence[str] = _notes(plan, communication)
        bare = [getattr(module, "module", module) for module in modules]
        self.state = SplitTrainingState(
            parameters=list(
                zip([name for stage in bare for name in stage.whole_names()], self._parameters, strict=True)
            ),
            optimizer=self._optimizer,
            schedule=self._learning_rate,
            scaler=None,
            communication=communication,
            is_copy=self.data_parallel_rank != 0,
            go_on_from=lambda _: None,
        )

    def step(self, micro_batches: Sequence[MicroBatch]) -> StepResult:
        """Run the schedule over the chunks of every micro-batch, clip over all stages, and update; see Engine."""
        losses = []
        for micro_step, batch in enumerate(micro_batches):
            self._chunk_loss.share = batch.weight / (batch.label_count * len(micro_batches))
            losses += self._run(batch, is_last=micro_step == len(micro_batches) - 1)
        self._lap("pipeline_bubble")
        if self._averages_last:
            average_gradients(self._parameters, self._data_group)
            self._lap("passes")
        gradient_norm = clip_gradients(
            self._parameters, self._training.gradient_clip, stage_group=self._stage_group, lap=self._lap
        )
        learning_rate = learning_rate_of(self._optimizer)
        self._optimizer.step()
        self._learning_rate.step()
        self._optimizer.zero_grad()
        self._lap("optimizer")
        if self.communication is not None:
            self.communication.step_ended()
        # Each chunk's loss is its part of the step's already; only the last stage has any.
        loss = torch.stack(losses).sum() if losses else torch.zeros((), device=micro_batches[0].tokens.device)
        return StepResult(
            loss_share=loss / self._data_parallel_size,
            gradient_norm=gradient_norm,
            learning_rate=learning_rate,
            sequences=sum(len(batch.tokens) for batch in micro_batches) * self._data_parallel_size,
        )

    def _run(self, batch: MicroBatch, *, is_last: bool) -> list[Any]:
        losses: list[Any] = []
        inputs = (batch.tokens,) if self._is_first else ()
        with ExitStack() as stack:
            for stage in self._stages:
                stage.is_last_micro_step = is_last
                if stage.is_replicated:
                    # A forward pass would have DDP average in its own backward pass, chunk by chunk. The stage tells
                    # DDP of the last one itself.
                    stack.enter_context(stage.submod.no_sync())
            stack.enter_context(failure_named(self.communication))
            if self._is_last:
                self._schedule.step(*inputs, target=batch.labels, losses=losses, return_outputs=False)
            else:
                self._schedule.step(*inputs)
        return [loss.detach() for loss in losses]


def build(setting: Setting, device: Any, lap: Lap) -> PipelineEngine:
    """Return the engine of a plan with a pipeline; raises UsageError where torch cannot run the combination."""
    plan, pipeline = setting.plan, setting.plan.pipeline
    if pipeline is None or pipeline.layers_per_stage is None:
        raise ValueError("the plan has no pipeline, or no model")
    _check(plan, pipeline)
    recipe = plan.recipe
    strategy = recipe.parallelism.data.strategy
    mesh = init_device_mesh(
        device.type, (pipeline.ranks, plan.batch.data_parallel_size), mesh_dim_names=("stage", "data")
    )
    held = held_stages(pipeline, mesh.get_local_rank("stage"))
    stages: dict[int, Any] = {}
    communication: GradientCommunication | None = None
    for index, module in zip(
        held,
        build_stages(
            plan,
            setting.model,
            [_layers_of(pipeline.layers_per_stage, index) for index in held],
            autocast_dtype=autocast_for(recipe) if strategy == "ddp" else None,
        ),
        strict=True,
    ):
        stage = module.to(device=device, dtype=weights_dtype(recipe.training))
        compile_model(stage, recipe.training)
        if strategy == "fsdp":
            shard(stage, stage.blocks, mesh["data"], plan)
        elif plan.batch.data_parallel_size > 1 and not _averages_last(plan, pipeline):
            options = ddp_options(recipe.communication.overlap)
            stage = DistributedDataParallel(stage, process_group=mesh.get_group("data"), **options)
            _settle_buckets(stage, _example_input(setting.model, device, weights_dtype(recipe.training), index))
            # Afterwards: a compressing method would take the zeros for gradients.
            communication = register_communication(stage, recipe)
        stages[index] = stage
    timed = {
        index: TimedStage(lap, stage, index, pipeline.stages, device, group=mesh.get_group("stage"))
        for index, stage in stages.items()
    }
    chunk_loss = ChunkLoss(lap)
    schedule = _schedule(pipeline, list(timed.values()), chunk_loss)
    return PipelineEngine(plan, pipeline, mesh, schedule, chunk_loss, timed, communication, lap)


def held_stages(pipeline: SettledPipeline, rank: int) -> list[int]:
    """Return the indices of the stages that `rank` of a pipeline holds.

    Rank r of p holds r, r + p, r + 2p, ...; with zbv r and 2p - 1 - r: down the ranks and up again, so that the first
    rank has both ends of the model (arXiv:2401.10241, section 6).
    """
    if pipeline.schedule == "zbv":
        return [rank, 2 * pipeline.ranks - 1 - rank]
    return list(range(rank, pipeline.stages, pipeline.ranks))


def _notes(plan: Plan, communication: GradientCommunication | None) -> list[str]:
    if communication is not None:
        return ["communication: that of the first stage's gradients; each stage averages its own"]
    if plan.recipe.communication.compression.method != "none":
        return ["one data-parallel rank: DDP and compression have nothing to do"]
    return []


def _layers_of(layers_per_stage: Sequence[int], index: int) -> range:
    start = sum(layers_per_stage[:index])
    return range(start, start + layers_per_stage[index])


def _averages_last(plan: Plan, pipeline: SettledPipeline) -> bool:
    """Return whether gradients are averaged after the passes rather than by DDP within them.

    DDP counts on one backward pass per forward pass, of the whole stage: schedules with several stages per rank hand it
    two in a row, and those without a bubble compute gradients of weights where its hooks are not called.
    """
    is_replicated = plan.batch.data_parallel_size > 1 and plan.recipe.parallelism.data.strategy == "ddp"
    return is_replicated and pipeline.schedule not in SINGLE_STAGE_SCHEDULES


def _settle_buckets(stage: Any, example: Any) -> None:
    """Run one backward pass of zeros through `stage`, a DistributedDataParallel, before the schedule does.

    DDP notes the order of gradients in its first backward pass and rebuilds its buckets in the forward pass after
    it: a run that goes on from a checkpoint would add in another order in its first step.
    """
    (stage(example).float().sum() * 0).backward()
    stage.zero_grad()


def _example_input(model: Model, device: Any, dtype: Any, index: int) -> Any:
    if index == 0:
        return torch.zeros(1, model.sequence_length, dtype=torch.long, device=device)
    return torch.zeros(1, model.sequence_length, model.hidden_size, dtype=dtype, device=device, requires_grad=True)


def _schedule(pipeline: SettledPipeline, stages: Sequence[Any], chunk_loss: ChunkLoss) -> Any:
    # Not scale_grads: it divides what earlier micro-steps accumulated once more.
    options = {"n_microbatches": pipeline.chunks, "loss_fn": chunk_loss, "scale_grads": False}
    held: Any = stages[0] if pipeline.schedule in SINGLE_STAGE_SCHEDULES else list(stages)
    return _SCHEDULES[pipeline.schedule](held, **options)


def _check(plan: Plan, pipeline: SettledPipeline) -> None:
    recipe = plan.recipe
    strategy = recipe.parallelism.data.strategy
    if plan.backend != "native" or strategy not in ("ddp", "fsdp"):
        raise UsageError(f"parallelism.pipeline runs on native with ddp or fsdp, not on {plan.backend} with {strategy}")
    if recipe.training.precision == "fp16-mixed":
        raise UsageError("training.precision: fp16-mixed cannot scale its loss over pipeline stages; use bf16-mixed")
    if recipe.communication.overlap.static_graph:
        raise UsageError("communication.overlap.static_graph: fails inside torch with pipeline stages; set it false")
    method = recipe.communication.compression.method
    if method != "none" and (method not in PIPELINED_METHODS or pipeline.schedule not in SINGLE_STAGE_SCHEDULES):
        raise UsageError(
            f"communication.compression: {method} does not work in a pipeline with {pipeline.schedule}; use method none"
        )
