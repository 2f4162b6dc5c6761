"""Collects what a cause finder must know of one cell beside its time split: sizes, batch, pipeline, machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from gradwire.compare.like import Scaling
from gradwire.documents.measurement_schema import Measurement, TimeSplit, Workload
from gradwire.measure.time_split import PARTS
from gradwire.recipe.broken import SINGLE_STAGE_SCHEDULES


@dataclass(frozen=True, kw_only=True, slots=True)
class Situation:
    """Sizes of one cell and its baseline.

    `baseline_num_gpus` and `baseline_split` are None without a baseline that can be compared with. `sequences_per_rank`
    are those of one step and rank. `stages` and `chunks` are None without a pipeline of several stages; `stages` also
    where each rank holds several. `gradient_bytes`: what a data-parallel rank has to send; None where it is not known.
    `link_bytes_per_second`: the bytes that a rank sent over the seconds in which gradients were under way; None where
    these were not timed.
    """

    num_gpus: int
    scaling: Scaling
    workload: Workload
    device: Literal["cuda", "cpu"]
    processes_per_node: int
    cpu_count: int
    sequences_per_rank: float
    stages: int | None = None
    chunks: int | None = None
    gradient_bytes: int | None = None
    link_bytes_per_second: float | None = None
    baseline_num_gpus: int | None = None
    baseline_split: TimeSplit | None = None


def situation_of(
    measurement: Measurement,
    *,
    scaling: Scaling,
    baseline_num_gpus: int | None = None,
    baseline_split: TimeSplit | None = None,
) -> Situation:
    """Return the situation of a run; `baseline_*` are those of the size that its efficiency is against."""
    workload, world = measurement.workload, measurement.world
    sequences = measurement.throughput.timed_samples / measurement.steps.timed if measurement.steps.timed else 0.0
    stages, chunks = _pipeline(workload, world.world_size, sequences)
    return Situation(
        num_gpus=world.world_size,
        scaling=scaling,
        workload=workload,
        device=world.device,
        processes_per_node=world.processes_per_node,
        cpu_count=measurement.hardware.cpu_count,
        sequences_per_rank=sequences / world.world_size,
        stages=stages,
        chunks=chunks,
        gradient_bytes=_gradient_bytes(measurement),
        link_bytes_per_second=_link_speed(measurement),
        baseline_num_gpus=baseline_num_gpus,
        baseline_split=baseline_split,
    )


def mean_split(splits: list[TimeSplit]) -> TimeSplit | None:
    """Return the mean of each part; the slowest rank is kept where all agree on it. None for none."""
    if not splits:
        return None
    means: dict[str, Any] = {part: _mean([getattr(split, part) for split in splits]) for part in PARTS}
    slowest = {split.slowest_rank for split in splits}
    return TimeSplit(**means, slowest_rank=slowest.pop() if len(slowest) == 1 else None)


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _pipeline(workload: Workload, world_size: int, sequences: float) -> tuple[int | None, int | None]:
    words = re.fullmatch(r"([\w-]+), (\d+) chunks(?:, \d+ stages per rank)?", workload.pipeline or "")
    share = workload.batch_size_per_gpu * workload.gradient_accumulation
    if words is None or not sequences:
        return None, None
    # Each data-parallel rank trains a share; the ranks beyond them are further stages.
    stages = round(world_size * share / sequences)
    if stages == 1:
        return None, None
    # The formula below is that of one stage per rank.
    return (stages if words[1] in SINGLE_STAGE_SCHEDULES else None), int(words[2])


def _link_speed(measurement: Measurement) -> float | None:
    traffic = measurement.communication
    if traffic is None or not traffic.communication_seconds or not traffic.wire_bytes:
        return None
    return traffic.wire_bytes / traffic.communication_seconds


def _gradient_bytes(measurement: Measurement) -> int | None:
    if measurement.communication is not None:
        return round(measurement.communication.gradient_bytes)
    flops = measurement.utilization.model_flops_per_second_per_rank
    tokens = measurement.throughput.tokens_per_second_per_rank
    if not flops or not tokens:
        return None
    # Six FLOPs per parameter and token, attention aside; gradients are as wide as the weights.
    width = 2 if measurement.workload.precision == "bf16-true" else 4
    return round(flops / tokens / 6 * width)
