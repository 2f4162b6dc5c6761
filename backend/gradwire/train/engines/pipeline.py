"""Torch's pipeline schedules: layers split over stages, each batch cut into chunks, data parallelism on every stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn.parallel import DistributedDataParallel

from gradwire.documents.plan_schema import Plan, SettledPipeline
from gradwire.documents.recipe_schema import Model
from gradwire.errors import UsageError
from gradwire.train.clip import clip_gradients
from gradwire.train.ddp import ddp_options
from gradwire.train.engines.engine import MicroBatch, StepResult
from gradwire.train.engines.native import autocast_for, shard
from gradwire.train.model import build_stage, token_loss, weights_dtype
from gradwire.train.optimizer import build_optimizer
from gradwire.train.schedule import ScheduledLearningRate, learning_rate_of
from gradwire.train.setting import Setting
from gradwire.train.stopwatch import Lap


class TimedStage(PipelineStage):  # type: ignore[misc]
    """A stage that gives its chunks' time to the passes, and the time between them to the bubble."""

    def __init__(self, lap: Lap, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._lap = lap

    def forward_one_chunk(self, *arguments: Any, **options: Any) -> Any:
        self._lap("pipeline_bubble")
        output = super().forward_one_chunk(*arguments, **options)
        self._lap("passes")
        return output

    def backward_one_chunk(self, *arguments: Any, **options: Any) -> None:
        self._lap("pipeline_bubble")
        super().backward_one_chunk(*arguments, **options)
        self._lap("passes")


class ChunkLoss:
    """The loss of one chunk as its part of the step's: its labels' summed loss times `share`, which each batch sets.

    A chunk's mean would count chunks with few labels too much.
    """

    def __init__(self, lap: Lap) -> None:
        self._lap = lap
        self.share = 1.0

    def __call__(self, logits: Any, labels: Any) -> Any:
        loss = token_loss(logits, labels, reduction="sum") * self.share
        self._lap("passes")
        return loss


class PipelineEngine:
    """Trains one stage of a model.

    Ranks form a mesh of stages x data-parallel ranks, the stage being the slower index: neighbouring ranks, mostly
    on one machine, hold the same stage and average its gradients, and only activations travel far.
    """

    communication = None
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
        stage: Any,
        lap: Lap,
    ) -> None:
        self._lap = lap
        self._training = plan.recipe.training
        self._data_parallel_size = plan.batch.data_parallel_size
        self._schedule = schedule
        self._chunk_loss = chunk_loss
        self._parameters = list(stage.parameters())
        self._optimizer = build_optimizer(self._parameters, plan.recipe.training)
        self._learning_rate = ScheduledLearningRate(self._optimizer, plan.recipe.training)
        self._stage_group = mesh.get_group("stage")
        index = mesh.get_local_rank("stage")
        self._is_first, self._is_last = index == 0, index == pipeline.stages - 1
        self.data_parallel_rank: int = mesh.get_local_rank("data")
        self.counts_samples = self._is_first
        self.notes: Sequence[str] = ()

    def step(self, micro_batches: Sequence[MicroBatch]) -> StepResult:
        """Run the schedule over the chunks of every micro-batch, clip over all stages, and update; see Engine."""
        losses = []
        for batch in micro_batches:
            self._chunk_loss.share = batch.weight / (batch.label_count * len(micro_batches))
            losses += self._run(batch)
        self._lap("pipeline_bubble")
        gradient_norm = clip_gradients(
            self._parameters, self._training.gradient_clip, stage_group=self._stage_group, lap=self._lap
        )
        learning_rate = learning_rate_of(self._optimizer)
        self._optimizer.step()
        self._learning_rate.step()
        self._optimizer.zero_grad()
        self._lap("optimizer")
        # Each chunk's loss is its part of the step's already; only the last stage has any.
        loss = torch.stack(losses).sum() if losses else torch.zeros((), device=micro_batches[0].tokens.device)
        return StepResult(
            loss_share=loss / self._data_parallel_size,
            gradient_norm=gradient_norm,
            learning_rate=learning_rate,
            sequences=sum(len(batch.tokens) for batch in micro_batches) * self._data_parallel_size,
        )

    def _run(self, batch: MicroBatch) -> list[Any]:
        losses: list[Any] = []
        inputs = (batch.tokens,) if self._is_first else ()
        if self._is_last:
            self._schedule.step(*inputs, target=batch.labels, losses=losses, return_outputs=False)
        else:
            self._schedule.step(*inputs)
        return [loss.detach() for loss in losses]


def build(setting: Setting, device: Any, lap: Lap) -> PipelineEngine:
    """Return the engine of a plan with a pipeline; raises UsageError where torch cannot run the combination."""
    plan, pipeline = setting.plan, setting.plan.pipeline
    if pipeline is None:
        raise ValueError("the plan has no pipeline")
    _check(plan)
    recipe = plan.recipe
    strategy = recipe.parallelism.data.strategy
    mesh = init_device_mesh(
        device.type, (pipeline.stages, plan.batch.data_parallel_size), mesh_dim_names=("stage", "data")
    )
    index = mesh.get_local_rank("stage")
    module = build_stage(
        plan,
        setting.model,
        index=index,
        stages=pipeline.stages,
        autocast_dtype=autocast_for(recipe) if strategy == "ddp" else None,
    ).to(device=device, dtype=weights_dtype(recipe.training))
    wrapped: Any = module
    if strategy == "fsdp":
        shard(module, module.blocks, mesh["data"], plan)
    elif plan.batch.data_parallel_size > 1:
        options = ddp_options(recipe.communication.overlap)
        wrapped = DistributedDataParallel(module, process_group=mesh.get_group("data"), **options)
        _settle_buckets(wrapped, _example_input(setting.model, device, weights_dtype(recipe.training), index))
    stage = TimedStage(lap, wrapped, index, pipeline.stages, device, group=mesh.get_group("stage"))
    chunk_loss = ChunkLoss(lap)
    return PipelineEngine(plan, pipeline, mesh, _schedule(pipeline, stage, chunk_loss), chunk_loss, wrapped, lap)


def _settle_buckets(stage: Any, example: Any) -> None:
    """Run one backward pass of zeros through `stage`, a DistributedDataParallel, before the schedule does.

    DDP notes the order of gradients in its first backward pass and rebuilds its buckets in the forward pass after
    it. Schedules that start with two backward passes in a row (GPipe; 1F1B where chunks = stages) make it note every
    parameter twice, which fails inside torch.
    """
    (stage(example).float().sum() * 0).backward()
    stage.zero_grad()


def _example_input(model: Model, device: Any, dtype: Any, index: int) -> Any:
    if index == 0:
        return torch.zeros(1, model.sequence_length, dtype=torch.long, device=device)
    return torch.zeros(1, model.sequence_length, model.hidden_size, dtype=dtype, device=device, requires_grad=True)


def _schedule(pipeline: SettledPipeline, stage: Any, chunk_loss: ChunkLoss) -> Any:
    # Not scale_grads: it divides what earlier micro-steps accumulated once more.
    options = {"n_microbatches": pipeline.chunks, "loss_fn": chunk_loss, "scale_grads": False}
    match pipeline.schedule:
        case "gpipe":
            return ScheduleGPipe(stage, **options)
        case "1f1b":
            return Schedule1F1B(stage, **options)
        case unknown:
            assert_never(unknown)


def _check(plan: Plan) -> None:
    recipe = plan.recipe
    strategy = recipe.parallelism.data.strategy
    if plan.backend != "native" or strategy not in ("ddp", "fsdp"):
        raise UsageError(f"parallelism.pipeline runs on native with ddp or fsdp, not on {plan.backend} with {strategy}")
    if recipe.training.precision == "fp16-mixed":
        raise UsageError("training.precision: fp16-mixed cannot scale its loss over pipeline stages; use bf16-mixed")
    if recipe.communication.overlap.static_graph:
        raise UsageError("communication.overlap.static_graph: fails inside torch with pipeline stages; set it false")
    if recipe.communication.compression.method != "none":
        raise UsageError("communication.compression: works without a pipeline only; set method: none")
