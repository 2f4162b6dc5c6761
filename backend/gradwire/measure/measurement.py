"""Builds the measurement of one run from what each rank recorded, and reads and writes it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from gradwire.documents.measurement_schema import (
    Batches,
    Bubble,
    Buckets,
    Hardware,
    Measurement,
    Steps,
    Throughput,
    TimeSplit,
)
from gradwire.documents.plan_schema import Plan
from gradwire.measure.document import document_text, read_document, write_text
from gradwire.measure.energy import energy_of
from gradwire.measure.matmul_peak import RunPeak
from gradwire.measure.step_times import micro_step_times, step_times
from gradwire.measure.time_split import step_of
from gradwire.measure.totals import RankRecord, Totals, memory_of, throughput_of, totals_of
from gradwire.measure.traffic import StepTraffic, mean_traffic
from gradwire.measure.utilization import utilization_of
from gradwire.measure.workload import workload_of


def build_measurement(
    plan: Plan,
    ranks: Sequence[RankRecord],
    *,
    losses: Sequence[float | None],
    gradient_norms: Sequence[float | None],
    started_at: str,
    versions: Mapping[str, str | None],
    hardware: Hardware,
    notes: Sequence[str],
    time_split: TimeSplit | None = None,
    traffic: Sequence[StepTraffic] = (),
    micro_steps: Sequence[Sequence[float]] = (),
    measured_peak: RunPeak | None = None,
    buckets: Buckets | None = None,
    learning_rates: Sequence[float] = (),
    batches: Batches | None = None,
) -> Measurement:
    """Return the measurement of a run of `plan`; `ranks` has one record per rank, in rank order.

    `losses`, `gradient_norms` and, unless it is empty, `learning_rates` have one entry per trained step (None: not
    reported); `batches` says what each was taken over. `started_at` is UTC in ISO 8601, `time_split` is the mean timed
    step's (None: not recorded). `traffic` has one entry per trained step, of rank 0, or is empty where nobody counted.
    `micro_steps` has the seconds of each rank's timed micro-steps, or is
    empty; `measured_peak` stands in where the device's peak is not known; `buckets` are DDP's sizes, None without DDP.
    A step lasts as long as it does on its slowest rank; its work is the sum over all ranks. Notes are added where the
    numbers need one. Raises ValueError where the records contradict the plan or each other.
    """
    _check(plan, ranks, losses, gradient_norms, traffic, learning_rates)
    totals = totals_of(ranks, warmup_steps=plan.recipe.measurement.warmup_steps)
    trained = len(totals.seconds)
    warmup = min(plan.recipe.measurement.warmup_steps, trained)
    throughput = throughput_of(totals, plan.world.world_size)
    return Measurement(
        format_version=1,
        backend=plan.backend,
        recipe_name=plan.recipe_name,
        recipe_sha256=plan.recipe_sha256,
        started_at=started_at,
        workload=workload_of(plan, hardware.device_name),
        world=plan.world,
        versions=dict(versions),
        hardware=hardware,
        steps=Steps(
            trained=trained,
            warmup=warmup,
            timed=len(totals.timed),
            excluded_seconds=max(rank.paused_seconds for rank in ranks),
        ),
        throughput=throughput,
        step_seconds=step_times([rank.step_seconds for rank in ranks], timed=totals.timed),
        micro_step_seconds=micro_step_times(micro_steps),
        communication=mean_traffic(traffic, timed=totals.timed),
        buckets=buckets,
        time_split=time_split,
        bubble=_bubble(plan, time_split),
        memory=memory_of(ranks),
        energy=energy_of([rank.energy for rank in ranks], tokens=sum(totals.tokens[warmup:])),
        utilization=utilization_of(
            plan, hardware.device_name, throughput.tokens_per_second_per_rank, measured_peak=measured_peak
        ),
        losses=[_finite(loss) for loss in losses],
        gradient_norms=[_finite(norm) for norm in gradient_norms],
        learning_rates=list(learning_rates),
        batches=batches,
        notes=[*notes, *_clock_notes(ranks), *_notes(plan, totals, throughput, losses)],
    )


def _bubble(plan: Plan, time_split: TimeSplit | None) -> Bubble | None:
    if plan.pipeline is None:
        return None
    measured = None
    if time_split is not None:
        measured = min(1.0, time_split.pipeline_bubble / step_of(time_split))
    return Bubble(measured=measured, by_formula=plan.pipeline.bubble_fraction)


def read_measurement(path: Path) -> Measurement:
    """Return the measurement in `path`; raises UsageError, with every violation, where it is none."""
    return read_document(path, "measurement", Measurement)


def write_measurement(path: Path, measurement: Measurement) -> None:
    """Write `measurement` to `path`, whole or not at all; raises UsageError where that cannot be."""
    write_text(path, document_text(measurement, "measurement"))


def _finite(value: float | None) -> float | None:
    # JSON has no NaN; the note says where one was.
    return value if value is not None and math.isfinite(value) else None


def _clock_notes(ranks: Sequence[RankRecord]) -> list[str]:
    return [f"rank {number}: {note}" for number, rank in enumerate(ranks) for note in rank.notes]


def _notes(
    plan: Plan,
    totals: Totals,
    throughput: Throughput,
    losses: Sequence[float | None],
) -> list[str]:
    notes = []
    samples = totals.samples
    trained, timed = len(samples), len(totals.timed)
    if not timed:
        asked = plan.recipe.measurement.warmup_steps
        notes.append(
            f"no step was timed: {trained} {_plural('step', trained)} trained, and measurement.warmup_steps leaves out "
            f"the first {asked}"
        )
    elif throughput.timed_seconds == 0:
        notes.append(f"the {timed} timed {_plural('step', timed)} took 0 seconds by the clock, so there is no rate")
    planned = plan.batch.global_batch_size
    other = [number for number, count in enumerate(samples) if count != planned]
    if other:
        notes.append(
            f"{len(other)} of {trained} steps did not train the plan's global batch of {planned} sequences: "
            f"step {other[0]} trained {samples[other[0]]}; the rates are of what was trained"
        )
    broken = [str(number) for number, loss in enumerate(losses) if loss is not None and not math.isfinite(loss)]
    if broken:
        shown = ", ".join(broken[:5]) + (", ..." if len(broken) > 5 else "")
        notes.append(f"the loss is not finite at step {shown}")
    return notes


def _plural(word: str, number: int) -> str:
    return word if number == 1 else f"{word}s"


def _check(
    plan: Plan,
    ranks: Sequence[RankRecord],
    losses: Sequence[float | None],
    gradient_norms: Sequence[float | None],
    traffic: Sequence[StepTraffic],
    learning_rates: Sequence[float],
) -> None:
    if len(ranks) != plan.world.world_size:
        raise ValueError(f"{len(ranks)} records for {plan.world.world_size} ranks")
    trained = len(ranks[0].step_seconds)
    lengths = {
        "losses": len(losses),
        "gradient_norms": len(gradient_norms),
        **({"traffic": len(traffic)} if traffic else {}),
        **({"learning_rates": len(learning_rates)} if learning_rates else {}),
        **{
            f"rank {number} {name}": len(getattr(rank, name))
            for number, rank in enumerate(ranks)
            for name in ("step_seconds", "samples", "tokens")
        },
        **{f"rank {number} slots": len(rank.slots) for number, rank in enumerate(ranks) if rank.slots is not None},
    }
    uneven = [f"{name} has {length}" for name, length in lengths.items() if length != trained]
    if uneven:
        raise ValueError(f"rank 0 recorded {trained} steps, but " + ", ".join(uneven))
    for number, rank in enumerate(ranks):
        if not all(math.isfinite(seconds) and seconds >= 0 for seconds in rank.step_seconds):
            raise ValueError(f"rank {number} recorded a step that took no finite time, at least 0")
        if min([*rank.samples, *rank.tokens, *(rank.slots or ())], default=0) < 0:
            raise ValueError(f"rank {number} counted less than nothing")
