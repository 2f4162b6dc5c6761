"""The one step loop: reads this rank's samples, lets the engine step, times it, shares the loss and writes it down."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed

from gradwire.documents.measurement_schema import Buckets
from gradwire.documents.plan_schema import Plan
from gradwire.documents.step_schema import Step, StepLaps
from gradwire.measure.meter import ThroughputMeter
from gradwire.measure.nvml import EnergyCounter
from gradwire.measure.steps import StepWriter
from gradwire.measure.time_split import Collectives, RankLaps
from gradwire.measure.traffic import StepTraffic
from gradwire.train.engines.engine import Engine, MicroBatch, StepResult
from gradwire.train.feed import Feed, read_micro_batches
from gradwire.train.setting import EveryRankFailed
from gradwire.train.stopwatch import Part, Stopwatch
from gradwire.train.tracking import TrackedSteps

# Steps without communication: a quarter of the timed ones, but no more than this, and one more to warm up.
_MOST_LONE_STEPS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """One entry per optimizer step, equal on every rank: loss in nats per token, gradient norm or None, learning rate.

    And what the step was taken over, all ranks together: see the measurement's `batches`.

    `traffic` is this rank's own, and empty where nobody counts it.
    """

    losses: list[float] = field(default_factory=list)
    gradient_norms: list[float | None] = field(default_factory=list)
    learning_rates: list[float] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    text_checksums: list[int] = field(default_factory=list)
    traffic: list[StepTraffic] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """What one rank's training left: its meter, the history, the laps of all steps, notes for a reader.

    `collectives` says whether the passes' communication could be turned off; see `gradwire.measure.time_split`.
    """

    meter: ThroughputMeter
    history: History
    laps: RankLaps
    collectives: Collectives
    notes: Sequence[str]
    buckets: Buckets | None


def log(text: str) -> None:
    """Write one line of the run's log, to stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def train(
    plan: Plan,
    engine: Engine,
    feed: Feed,
    stopwatch: Stopwatch,
    *,
    writer: StepWriter | TrackedSteps | None,
    energy: EnergyCounter,
    first_step: int = 0,
    save: Callable[[int], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Trained:
    """Train the plan's steps from `first_step` on.

    A step is timed from reading its samples to the device having finished it; sharing the loss is not. Steps are
    logged and go to `writer`, None on all ranks but one; `energy` counts while they are timed. After the last step,
    where the engine can step without communication, a few more steps are made so: they leave no loss, but weights that
    belong to no training. `save` is called after each step with the number of steps taken; it counts for no step.
    Raises EveryRankFailed where the loss is not finite.
    """
    training = plan.recipe.training
    history = History()
    warmup = plan.recipe.measurement.warmup_steps
    meter = ThroughputMeter(clock=clock, warmup_steps=warmup)
    samples = plan.batch.batch_size_per_gpu * plan.batch.gradient_accumulation if engine.counts_samples else 0
    laps: list[dict[Part, float]] = []
    micro_steps: list[list[float]] = []
    meter.start()
    for step in range(first_step, training.max_steps):
        if step - first_step == warmup:
            energy.start()
        micro_batches, result = _step(plan, engine, feed, stopwatch, step)
        meter.step(samples=samples, tokens=samples * feed.sequence_length)
        meter.pause()
        laps.append(stopwatch.seconds())
        passes = stopwatch.laps("passes")
        # A pipeline's laps are of chunks, and more than one of each.
        micro_steps.append(passes if len(passes) == plan.batch.gradient_accumulation else [])
        if engine.communication is not None and engine.communication.last_step is not None:
            history.traffic.append(engine.communication.last_step)
        counted = micro_batches if engine.counts_samples else []
        finish_step(
            plan, feed, history, counted, result, meter.last_step_seconds, laps[-1], writer=writer, number=step + 1
        )
        if save is not None:
            save(step + 1)
        meter.resume()
    energy.stop()
    if engine.communication is not None:
        engine.communication.synchronise()
    if writer is not None and engine.lone_step is not None and plan.batch.data_parallel_size > 1:
        log("a few more steps without communication, to tell it from compute; they count for nothing else")
    collectives, lone_passes = _lone_passes(plan, engine, feed, stopwatch, meter.timed_steps)
    return Trained(
        meter=meter,
        history=history,
        laps=rank_laps(list(meter.step_seconds), laps, lone_passes, micro_steps),
        collectives=collectives,
        notes=engine.notes,
        buckets=engine.buckets,
    )


def finish_step(
    plan: Plan,
    feed: Feed,
    history: History,
    counted: Sequence[MicroBatch],
    result: StepResult,
    seconds: float,
    laps: dict[Part, float],
    *,
    writer: StepWriter | TrackedSteps | None,
    number: int,
) -> None:
    """Share what the step of `seconds` gave, the run's `number`th, note it in `history`, log it and write it down.

    `laps` are its parts; `counted` are the micro-batches that this rank counts for all that read them. Raises
    EveryRankFailed where the loss is not finite, or the gradient, with which the weights are lost.
    """
    step = number - 1
    broken = _record(history, counted, result)
    if writer is not None:
        writer.write(_line(plan, feed, history, number, seconds, laps))
        log(_progress(step, plan.recipe.training.max_steps, history, seconds, plan.batch.tokens_per_step))
    if not math.isfinite(history.losses[-1]):
        raise EveryRankFailed(
            f"the loss is {history.losses[-1]} in step {step}: training diverged; "
            "lower training.learning_rate, set training.gradient_clip, or use a wider training.precision"
        )
    # A loss scale makes some on purpose, and skips their steps.
    if broken and plan.recipe.training.precision != "fp16-mixed":
        raise EveryRankFailed(
            f"the gradient is not finite on {broken} of {plan.world.world_size} ranks in step {step}, and the loss is: "
            "training diverged; lower training.learning_rate, or use a wider training.precision or communication.dtype"
        )


def _step(
    plan: Plan, engine: Engine, feed: Feed, stopwatch: Stopwatch, step: int
) -> tuple[list[MicroBatch], StepResult]:
    stopwatch.begin()
    micro_batches = read_micro_batches(
        plan, feed, step=step, data_parallel_rank=engine.data_parallel_rank, counts_samples=engine.counts_samples
    )
    stopwatch.lap("input_wait")
    result = engine.step(micro_batches)
    if feed.device.type == "cuda":
        torch.cuda.synchronize(feed.device)
    return micro_batches, result


def _lone_passes(
    plan: Plan, engine: Engine, feed: Feed, stopwatch: Stopwatch, timed: int
) -> tuple[Collectives, list[float]]:
    """Return whether the passes' collectives can be turned off, and the seconds of the passes in steps without them."""
    if plan.batch.data_parallel_size == 1:
        return "none", []
    if engine.lone_step is None:
        return "inseparable", []
    if not timed:
        return "stopped", []
    passes = []
    for extra in range(1 + min(max(1, timed // 4), _MOST_LONE_STEPS)):
        # As in training, where sharing the loss has the ranks begin a step together.
        torch.distributed.barrier()
        with engine.lone_step():
            _step(plan, engine, feed, stopwatch, plan.recipe.training.max_steps + extra)
        passes.append(stopwatch.seconds()["passes"])
    return "stopped", passes[1:]


def rank_laps(
    step: list[float], laps: list[dict[Part, float]], lone_passes: list[float], micro_steps: list[list[float]]
) -> RankLaps:
    """Return a rank's laps, part by part, from those of its steps."""
    return RankLaps(
        step=step,
        input_wait=[lap["input_wait"] for lap in laps],
        passes=[lap["passes"] for lap in laps],
        pipeline_bubble=[lap["pipeline_bubble"] for lap in laps],
        optimizer=[lap["optimizer"] for lap in laps],
        lone_passes=lone_passes,
        micro_steps=micro_steps,
    )


def _record(history: History, counted: Sequence[MicroBatch], result: StepResult) -> int:
    """Note what a step gave on all ranks; return on how many the gradient is not finite."""
    norm = None if result.gradient_norm is None else float(result.gradient_norm)
    is_broken = norm is not None and not math.isfinite(norm)
    own = [sum(batch.label_count for batch in counted), sum(batch.checksum for batch in counted), int(is_broken)]
    # In one message; a double holds the counts whole.
    shared = torch.cat(
        [result.loss_share.detach().double().reshape(1), result.loss_share.new_tensor(own, dtype=torch.float64)]
    )
    torch.distributed.all_reduce(shared)
    loss, labels, checksum, broken = shared.tolist()
    history.losses.append(loss)
    history.labels.append(int(labels))
    history.text_checksums.append(int(checksum))
    history.sequences.append(result.sequences)
    history.gradient_norms.append(norm)
    history.learning_rates.append(result.learning_rate)
    return int(broken)


def _line(plan: Plan, feed: Feed, history: History, number: int, seconds: float, laps: dict[Part, float]) -> Step:
    loss, norm = history.losses[-1], history.gradient_norms[-1]
    return Step(
        step=number,
        loss=loss if math.isfinite(loss) else None,
        gradient_norm=norm if norm is not None and math.isfinite(norm) else None,
        learning_rate=history.learning_rates[-1],
        seconds=seconds,
        samples=plan.batch.global_batch_size,
        tokens=plan.batch.global_batch_size * feed.sequence_length,
        # Only rounding can make the rest negative: laps lie within their step.
        laps=StepLaps(**laps, other=max(0.0, seconds - math.fsum(laps.values()))),
    )


def _progress(step: int, steps: int, history: History, seconds: float, tokens: int | None) -> str:
    norm = history.gradient_norms[-1]
    shown_norm = "" if norm is None else f"  gradient norm {norm:.3f}"
    rate = f"  {tokens / seconds:,.0f} tokens/s" if tokens else ""
    return f"step {step + 1}/{steps}  loss {history.losses[-1]:.4f}{shown_norm}  {seconds:.3f} s{rate}"
