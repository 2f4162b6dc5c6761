"""Builds the measurement of a command that was watched from outside, from what its ranks wrote down."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence

import msgspec

from gradwire.documents.measurement_schema import Hardware, Measurement, Steps, Throughput, Workload
from gradwire.documents.plan_schema import World
from gradwire.documents.step_schema import Step
from gradwire.measure.clock_jumps import forward_jumps, jump_notes
from gradwire.measure.energy import DeviceEnergy, energy_of
from gradwire.measure.meter import JUMP_SECONDS
from gradwire.measure.quantiles import median
from gradwire.measure.rank_log import RankLog
from gradwire.measure.step_times import step_times
from gradwire.measure.time_split import RankLaps, split_time
from gradwire.measure.totals import RankRecord, Totals, memory_of, throughput_of, totals_of
from gradwire.measure.watched_utilization import GivenFigures, watched_utilization

_WITHOUT_MODEL = "the script's own"
_NOTHING_GIVEN = GivenFigures()


def one_run(logs: Sequence[RankLog]) -> tuple[list[RankLog], list[str]]:
    """Return the ranks of one run among `logs`, in rank order, with notes on what is left out.

    Where processes trained each on its own, the first one is the run; where ranks began anew, the last start is, which
    may be of fewer or more of them.
    """
    together = [log for log in logs if log.start.world_size > 1]
    if not together:
        notes = (
            [
                f"{len(logs)} processes trained, each on its own, without a process group: the figures are those of "
                "the first. Where they should have trained together, nothing made them a group: without CUDA the "
                "Trainer may need use_cpu=True, and Accelerate ACCELERATE_USE_CPU=true"
            ]
            if len(logs) > 1
            else []
        )
        return sorted(logs, key=lambda log: (log.start.started_at, log.start.pid))[:1], notes
    ordered = sorted(together, key=lambda log: (log.start.started_at, log.start.attempt, log.start.pid))
    newest = ordered[-1].start
    last = {
        log.start.rank: log
        for log in ordered
        if (log.start.attempt, log.start.world_size) == (newest.attempt, newest.world_size)
    }
    restarts = max(Counter(log.start.rank for log in together).values()) - 1
    times = "once" if restarts == 1 else f"{restarts} times"
    notes = [f"ranks began anew {times}; the figures are since the last start"] if restarts else []
    return [last[rank] for rank in sorted(last)], notes


def missing_ranks(logs: Sequence[RankLog]) -> str | None:
    """Return why `logs` (of one run) are not the whole run; None where they are."""
    if not logs:
        return "no process of the command stepped an optimizer of torch's, or DeepSpeed's engine"
    world_size = logs[0].start.world_size
    if len(logs) < world_size:
        return (
            f"{len(logs)} of {world_size} ranks wrote down what they did here; on several machines, start "
            "`gradwire measure` on each with one --out that all share"
        )
    return None


def finished_steps(logs: Sequence[RankLog], *, after: int) -> list[Step]:
    """Return the steps that every rank has finished, from the one after `after` on; no loss is seen from outside."""
    if missing_ranks(logs) is not None:
        return []
    count = min(len(log.steps) for log in logs)
    return [
        Step(
            step=number + 1,
            loss=None,
            gradient_norm=None,
            seconds=logs[0].steps[number].parts.seconds,
            samples=sum(log.steps[number].samples or 0 for log in logs),
            tokens=sum(log.steps[number].tokens or 0 for log in logs),
        )
        for number in range(after, count)
    ]


def watched_measurement(
    logs: Sequence[RankLog], *, hardware: Hardware, notes: Sequence[str], given: GivenFigures = _NOTHING_GIVEN
) -> Measurement:
    """Return the measurement of the run whose every rank is in `logs`, in rank order, on this machine's `hardware`.

    A step lies between two steps of the optimizer. Counts that no rank could tell make a rate None; `given` is what the
    person says of the model and the device. Raises ValueError where `logs` are not all ranks of a run.
    """
    why = missing_ranks(logs)
    if why is not None:
        raise ValueError(why)
    start = logs[0].start
    trained = min(len(log.steps) for log in logs)
    ranks = [_record(log, trained, start.warmup_steps) for log in logs]
    totals = totals_of(ranks, warmup_steps=start.warmup_steps)
    throughput = _known(throughput_of(totals, start.world_size), logs, totals)
    workload = _workload(logs, totals, hardware.device_name)
    return Measurement(
        format_version=1,
        backend=start.library,
        recipe_name=start.script,
        # The same at each size of the same training, as a recipe's is.
        recipe_sha256=hashlib.sha256(msgspec.json.encode([start.script, workload])).hexdigest(),
        started_at=start.started_at,
        workload=workload,
        world=World(
            world_size=start.world_size,
            num_nodes=math.ceil(start.world_size / start.ranks_on_node),
            processes_per_node=start.ranks_on_node,
            device=start.device,
            process_group_backend="nccl" if start.device == "cuda" else "gloo",
        ),
        versions=start.versions,
        hardware=hardware,
        steps=Steps(
            trained=trained,
            warmup=min(start.warmup_steps, trained),
            timed=len(totals.timed),
            excluded_seconds=max(rank.paused_seconds for rank in ranks),
        ),
        throughput=throughput,
        step_seconds=step_times([rank.step_seconds for rank in ranks], timed=totals.timed),
        communication=None,
        time_split=split_time(
            [_laps(log, totals.timed) for log in logs], "none" if start.world_size == 1 else "inseparable"
        ),
        memory=memory_of(ranks),
        energy=energy_of([rank.energy for rank in ranks], tokens=sum(totals.tokens[start.warmup_steps :])),
        utilization=watched_utilization(logs, totals.timed, throughput, hardware.device_name, given),
        losses=[None] * trained,
        gradient_norms=[None] * trained,
        notes=[*notes, *_notes(logs, ranks, throughput)],
    )


def _record(log: RankLog, trained: int, warmup_steps: int) -> RankRecord:
    steps, facts = log.steps[:trained], log.facts
    seconds = [step.parts.seconds for step in steps]
    jumped = forward_jumps(
        dict(enumerate(seconds[warmup_steps:], start=warmup_steps)), backward=(), at_least_seconds=JUMP_SECONDS
    )
    return RankRecord(
        step_seconds=seconds,
        samples=[step.samples or 0 for step in steps],
        tokens=[step.tokens or 0 for step in steps],
        slots=[step.slots or 0 for step in steps],
        untimed_steps=jumped,
        # What came before the end of the first step is setting up.
        paused_seconds=math.fsum(step.parts.excluded for step in steps[1:]),
        notes=[*jump_notes(seconds, backward=(), forward=jumped), *(facts.notes if facts else [])],
        peak_device_allocated_bytes=facts.peak_device_allocated_bytes if facts else None,
        peak_device_reserved_bytes=facts.peak_device_reserved_bytes if facts else None,
        peak_process_bytes=facts.peak_process_bytes if facts else 0,
        energy=DeviceEnergy(
            joules=facts.joules,
            seconds=facts.joules_seconds,
            device=facts.joules_device,
            reason=facts.joules_reason,
        )
        if facts
        else None,
    )


def _laps(log: RankLog, timed: Sequence[int]) -> RankLaps:
    parts = [log.steps[step].parts for step in timed]
    return RankLaps(
        step=[part.seconds for part in parts],
        input_wait=[part.input_wait for part in parts],
        passes=[part.passes for part in parts],
        pipeline_bubble=[0.0] * len(parts),
        optimizer=[part.optimizer for part in parts],
        lone_passes=[],
    )


def _known(throughput: Throughput, logs: Sequence[RankLog], totals: Totals) -> Throughput:
    """The throughput without the rates of what no rank could count."""
    if not _is_counted(logs, totals, "samples"):
        throughput = msgspec.structs.replace(throughput, samples_per_second=None, samples_per_second_per_rank=None)
    if not _is_counted(logs, totals, "tokens"):
        throughput = msgspec.structs.replace(
            throughput,
            tokens_per_second=None,
            tokens_per_second_per_rank=None,
            slots_per_second=None,
            timed_slots=None,
        )
    return throughput


def _is_counted(logs: Sequence[RankLog], totals: Totals, name: str) -> bool:
    return any(all(getattr(log.steps[step], name) is not None for step in totals.timed) for log in logs)


def _workload(logs: Sequence[RankLog], totals: Totals, device_name: str) -> Workload:
    first, facts = logs[0], logs[0].facts
    subject = facts.subject if facts else None
    steps = [first.steps[step] for step in totals.timed]
    # Over all ranks: one may count the sequences, and each its slice of them.
    lengths = {totals.slots[step] / totals.samples[step] for step in totals.timed if totals.samples[step]} - {0.0}
    passes = round(median([step.passes for step in steps])) if steps else 1
    per_pass = [step.samples / step.passes for step in steps if step.samples and step.passes]
    return Workload(
        model=(subject.model if subject else None) or _WITHOUT_MODEL,
        sequence_length=_whole(lengths.pop()) if len(lengths) == 1 else None,
        precision=subject.precision if subject else "not known",
        optimizer=subject.optimizer if subject else "not known",
        batch_size_per_gpu=max(1, round(median(per_pass))) if per_pass else 1,
        gradient_accumulation=max(1, passes),
        strategy=subject.strategy if subject else "ddp",
        pipeline=None,
        compression="none",
        gradient_checkpointing=bool(subject and subject.gradient_checkpointing),
        compile=bool(subject and subject.compile),
        device=f"{first.start.device} {device_name}",
    )


def _whole(length: float) -> int | None:
    return int(length) if length.is_integer() else None


def _notes(logs: Sequence[RankLog], ranks: Sequence[RankRecord], throughput: Throughput) -> list[str]:
    notes = [
        "watched from outside: a step lies between two steps of the optimizer; loss, gradient norm and communication "
        "are not seen"
    ]
    if throughput.samples_per_second is None and throughput.timed_seconds > 0:
        notes.append("what the model was given has no batch that could be counted: only steps were timed")
    elif throughput.tokens_per_second is None and throughput.timed_seconds > 0:
        notes.append("what the model was given is not tokens, or cannot be told to be: samples were counted")
    if throughput.timed_seconds == 0:
        notes.append(
            f"no step was timed: {min(len(log.steps) for log in logs)} were seen, and the first "
            f"{logs[0].start.warmup_steps} are warm-up"
        )
    if logs[0].start.world_size > 1:
        notes.append("time split: communication cannot be told from compute here, which contains it")
    own = [f"rank {number}: {note}" for number, rank in enumerate(ranks) for note in rank.notes]
    return [*notes, *own]
