"""The one step loop: reads this rank's samples, lets the engine step, times it, and shares the loss."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed

from gradwire.documents.plan_schema import Plan
from gradwire.measure.meter import ThroughputMeter
from gradwire.measure.traffic import StepTraffic
from gradwire.train.data import SampleOrder, Text, cut
from gradwire.train.engines.engine import Engine, MicroBatch, StepResult
from gradwire.train.setting import EveryRankFailed


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """One entry per optimizer step: loss in nats per token and gradient norm or None, equal on every rank.

    `traffic` is this rank's own, and empty where nobody counts it.
    """

    losses: list[float] = field(default_factory=list)
    gradient_norms: list[float | None] = field(default_factory=list)
    traffic: list[StepTraffic] = field(default_factory=list)


def log(text: str) -> None:
    """Write one line of the run's log, to stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def train(
    plan: Plan,
    engine: Engine,
    *,
    text: Text,
    order: SampleOrder,
    sequence_length: int,
    device: Any,
    is_first_rank: bool,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[ThroughputMeter, History]:
    """Train the plan's `max_steps`; return this rank's meter and the history.

    A step is timed from reading its samples to the device having finished it; sharing the loss is not.
    Raises EveryRankFailed where the loss is not finite.
    """
    training = plan.recipe.training
    history = History()
    meter = ThroughputMeter(clock=clock, warmup_steps=plan.recipe.measurement.warmup_steps)
    samples = plan.batch.batch_size_per_gpu * plan.batch.gradient_accumulation if engine.counts_samples else 0
    meter.start()
    for step in range(training.max_steps):
        result = engine.step(_micro_batches(plan, engine, text, order, sequence_length, device, step))
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        meter.step(samples=samples, tokens=samples * sequence_length)
        meter.pause()
        _record(history, result)
        if engine.communication is not None and engine.communication.last_step is not None:
            history.traffic.append(engine.communication.last_step)
        if not math.isfinite(history.losses[-1]):
            raise EveryRankFailed(
                f"the loss is {history.losses[-1]} in step {step}: training diverged; "
                "lower training.learning_rate, set training.gradient_clip, or use a wider training.precision"
            )
        if is_first_rank:
            log(_progress(step, training.max_steps, history, meter.step_seconds[-1], plan.batch.tokens_per_step))
        meter.resume()
    return meter, history


def _micro_batches(
    plan: Plan, engine: Engine, text: Text, order: SampleOrder, sequence_length: int, device: Any, step: int
) -> list[MicroBatch]:
    batches = []
    for micro_step in range(plan.batch.gradient_accumulation):
        starts = order.starts(step=step, micro_step=micro_step, data_parallel_rank=engine.data_parallel_rank)
        tokens, labels = (torch.from_numpy(array).to(device) for array in cut(text, starts, sequence_length))
        batches.append(MicroBatch(tokens=tokens, labels=labels))
    return batches


def _record(history: History, result: StepResult) -> None:
    loss = result.loss_share.detach().double()
    torch.distributed.all_reduce(loss)
    history.losses.append(loss.item())
    history.gradient_norms.append(None if result.gradient_norm is None else float(result.gradient_norm))


def _progress(step: int, steps: int, history: History, seconds: float, tokens: int | None) -> str:
    norm = history.gradient_norms[-1]
    shown_norm = "" if norm is None else f"  gradient norm {norm:.3f}"
    rate = f"  {tokens / seconds:,.0f} tokens/s" if tokens else ""
    return f"step {step + 1}/{steps}  loss {history.losses[-1]:.4f}{shown_norm}  {seconds:.3f} s{rate}"
