"""Trains a plan with transformers' own Trainer and its own loop, fed with the samples of every other backend."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
from transformers import Trainer, TrainerCallback
from transformers.trainer_callback import PrinterCallback

from gradwire.documents.plan_schema import Plan
from gradwire.measure.meter import ThroughputMeter
from gradwire.measure.nvml import EnergyCounter
from gradwire.measure.steps import StepWriter
from gradwire.train.attention import check_flash_attention
from gradwire.train.buckets import settle_buckets
from gradwire.train.communication import GradientCommunication
from gradwire.train.compilation import compiled_notes
from gradwire.train.ddp import explained
from gradwire.train.engines.engine import MicroBatch, StepResult
from gradwire.train.feed import Feed, read_micro_batches
from gradwire.train.loop import History, Trained, finish_step, rank_laps
from gradwire.train.model import LossModel, build_model, compute_dtype
from gradwire.train.schedule import learning_rate_of
from gradwire.train.setting import Setting
from gradwire.train.shared_memory import release_deepspeed_buffers
from gradwire.train.stopwatch import Part, Stopwatch
from gradwire.train.tracking import TrackedSteps
from gradwire.train.trainer import build_arguments, follow

# The run's own, beside what the recipe decides: every step is recorded, and nothing is saved.
_OWN = {
    "disable_tqdm": True,
    "logging_steps": 1,
    "logging_nan_inf_filter": False,
    "remove_unused_columns": False,
    "report_to": "none",
    "save_strategy": "no",
}


def train_with_trainer(
    setting: Setting,
    feed: Feed,
    stopwatch: Stopwatch,
    *,
    writer: StepWriter | TrackedSteps | None,
    energy: EnergyCounter,
) -> Trained:
    """Train the setting's plan with a Trainer; see `gradwire.train.loop.train`.

    The Trainer's collectives are not turned off for a few steps, so communication cannot be told from compute.
    Raises EveryRankFailed where the loss is not finite.
    """
    plan, training = setting.plan, setting.plan.recipe.training
    if training.flash_attention:
        check_flash_attention(setting.model, device=feed.device, dtype=compute_dtype(training))
    # Before the arguments exist: with ZeRO 3 in them, transformers would shard the weights while it makes them.
    model = LossModel(build_model(plan, setting.model))
    arguments = build_arguments(plan, setting.folder, _OWN)
    # The model does it itself, block by block; the Trainer would do it once more.
    arguments.activation_checkpointing = arguments.gradient_checkpointing = False
    steps = _Steps(plan, feed, stopwatch, writer, energy)
    trainer = _PlanTrainer(model=model, args=arguments, callbacks=[steps])
    trainer.remove_callback(PrinterCallback)
    trainer.begin(setting, feed, steps)
    steps.communications = trainer.communications
    try:
        trainer.train()
        energy.stop()
        for communication in trainer.communications:
            communication.synchronise()
    finally:
        for communication in trainer.communications:
            communication.close()
    kind = trainer.accelerator.distributed_type.value
    is_ddp = plan.recipe.parallelism.data.strategy == "ddp" and plan.batch.data_parallel_size > 1
    buckets = (
        settle_buckets(model, plan.recipe, process_group=torch.distributed.group.WORLD, device=feed.device, passes=None)
        if is_ddp
        else None
    )
    return Trained(
        meter=steps.meter,
        history=steps.history,
        laps=rank_laps(list(steps.meter.step_seconds), steps.laps, [], steps.micro_steps),
        collectives="none" if plan.batch.data_parallel_size == 1 else "inseparable",
        notes=(f"the Trainer's distributed type: {kind}", *compiled_notes(trainer.model_wrapped, training)),
        buckets=buckets,
    )


class _Batches:
    """This rank's micro-batches in order, as the Trainer's data loader."""

    def __init__(self, setting: Setting, feed: Feed, steps: _Steps) -> None:
        self._plan, self._rank, self._feed, self._steps = setting.plan, setting.place.rank, feed, steps

    def __len__(self) -> int:
        return self._plan.recipe.training.max_steps * self._plan.batch.gradient_accumulation

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for step in range(self._plan.recipe.training.max_steps):
            batches = read_micro_batches(
                self._plan, self._feed, step=step, data_parallel_rank=self._rank, counts_samples=True
            )
            self._steps.micro_batches = batches
            for batch in batches:
                yield {"tokens": batch.tokens, "labels": batch.labels, "weight": batch.weight}


class _Steps(TrainerCallback):  # type: ignore[misc]
    """Times the Trainer's steps and notes what each gave."""

    def __init__(
        self,
        plan: Plan,
        feed: Feed,
        stopwatch: Stopwatch,
        writer: StepWriter | TrackedSteps | None,
        energy: EnergyCounter,
    ) -> None:
        self._plan, self._feed, self.stopwatch, self._writer, self._energy = plan, feed, stopwatch, writer, energy
        self.meter = ThroughputMeter(clock=time.perf_counter, warmup_steps=plan.recipe.measurement.warmup_steps)
        self.history = History()
        self.laps: list[dict[Part, float]] = []
        self.micro_steps: list[list[float]] = []
        self.losses: list[Any] = []
        self._learning_rate = 0.0
        self.micro_batches: list[MicroBatch] = []
        self.communications: list[GradientCommunication] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        release_deepspeed_buffers()
        self.meter.start()
        self.stopwatch.begin()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # Before the step: below the Trainer DeepSpeed moves it on within the last backward pass, and what is logged
        # then is the next step's.
        self._learning_rate = learning_rate_of(kwargs["optimizer"])
        # The Trainer reads a whole step's batches ahead.
        self.stopwatch.lap("input_wait")
        if len(self.laps) == self._plan.recipe.measurement.warmup_steps:
            self._energy.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.stopwatch.lap("optimizer")
        if self._feed.device.type == "cuda":
            torch.cuda.synchronize(self._feed.device)
        batch = self._plan.batch
        samples = batch.batch_size_per_gpu * batch.gradient_accumulation
        self.meter.step(samples=samples, tokens=samples * self._feed.sequence_length)
        self.meter.pause()
        self.laps.append(self.stopwatch.seconds())
        self.micro_steps.append(self.stopwatch.laps("passes"))

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        # Once in each step, after it; the last log of all is of the whole run.
        if logs is None or len(self.history.losses) == len(self.laps):
            return
        for communication in self.communications:
            if communication.last_step is not None:
                self.history.traffic.append(communication.last_step)
        result = StepResult(
            loss_share=torch.stack(self.losses).mean() / self._plan.world.world_size,
            gradient_norm=logs.get("grad_norm"),
            learning_rate=self._learning_rate,
            sequences=sum(len(batch.tokens) for batch in self.micro_batches) * self._plan.world.world_size,
        )
        self.losses.clear()
        seconds = self.meter.last_step_seconds
        finish_step(
            self._plan,
            self._feed,
            self.history,
            self.micro_batches,
            result,
            seconds,
            self.laps[-1],
            writer=self._writer,
            number=len(self.laps),
        )
        self.meter.resume()
        self.stopwatch.begin()


class _PlanTrainer(Trainer):  # type: ignore[misc]
    """The Trainer with the samples of the plan and a model that returns its loss."""

    def begin(self, setting: Setting, feed: Feed, steps: _Steps) -> None:
        """Take what the constructor has no room for."""
        self.communications = follow(self, setting.plan)
        self._batches, self._stopwatch, self._steps = _Batches(setting, feed, steps), steps.stopwatch, steps

    def get_train_dataloader(self) -> Any:
        return self._batches

    def compute_loss(self, model: Any, inputs: dict[str, Any], *arguments: Any, **options: Any) -> Any:
        # transformers divides by the micro-steps.
        loss = model(inputs["tokens"], inputs["labels"]) * inputs["weight"]
        self._steps.losses.append(loss.detach())
        return loss

    def training_step(self, *arguments: Any, **options: Any) -> Any:
        with explained(next(iter(self.communications), None)):
            loss = super().training_step(*arguments, **options)
        self._stopwatch.lap("passes")
        return loss
