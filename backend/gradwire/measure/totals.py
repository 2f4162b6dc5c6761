"""Adds up over ranks what each recorded: how long a step took, the work in it, and which steps are timed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from gradwire.documents.measurement_schema import Memory, Throughput
from gradwire.measure.energy import DeviceEnergy


@dataclass(frozen=True, kw_only=True, slots=True)
class RankRecord:
    """What one rank measured: one entry per optimizer step, warm-up steps included.

    Samples, tokens and slots (tokens with padding; None: as many as tokens) are those the rank read itself, over all
    micro-steps; a rank that reads none (a later pipeline stage) has zeros. `untimed_steps`, counted from 0, are left
    out of every timing: warm-up, or the clock jumped. Peaks are bytes; None: the rank has no device memory.
    """

    step_seconds: list[float]
    samples: list[int]
    tokens: list[int]
    peak_device_allocated_bytes: int | None
    peak_device_reserved_bytes: int | None
    peak_process_bytes: int
    slots: list[int] | None = None
    untimed_steps: list[int] = field(default_factory=list)
    paused_seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    energy: DeviceEnergy | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Totals:
    """One entry per trained step: `seconds` of its slowest rank, and the work over all ranks.

    `timed` are the steps, counted from 0, that timings rest on.
    """

    seconds: list[float]
    samples: list[int]
    tokens: list[int]
    slots: list[int]
    timed: list[int]


def totals_of(ranks: Sequence[RankRecord], *, warmup_steps: int) -> Totals:
    """Return the totals of `ranks`; a step is timed where it is so on every rank and not among the first ones."""
    untimed = {step for rank in ranks for step in rank.untimed_steps}
    seconds = [max(each) for each in zip(*(rank.step_seconds for rank in ranks), strict=True)]
    return Totals(
        seconds=seconds,
        samples=[sum(each) for each in zip(*(rank.samples for rank in ranks), strict=True)],
        tokens=[sum(each) for each in zip(*(rank.tokens for rank in ranks), strict=True)],
        slots=[sum(each) for each in zip(*(rank.slots or rank.tokens for rank in ranks), strict=True)],
        timed=[step for step in range(min(warmup_steps, len(seconds)), len(seconds)) if step not in untimed],
    )


def throughput_of(totals: Totals, world_size: int) -> Throughput:
    """Return the work per second of the timed steps; rates are None where no time was measured."""
    seconds = math.fsum(totals.seconds[step] for step in totals.timed)
    samples, tokens, slots = (
        sum(counts[step] for step in totals.timed) for counts in (totals.samples, totals.tokens, totals.slots)
    )
    has_rate = seconds > 0
    return Throughput(
        samples_per_second=samples / seconds if has_rate else None,
        tokens_per_second=tokens / seconds if has_rate else None,
        samples_per_second_per_rank=samples / seconds / world_size if has_rate else None,
        tokens_per_second_per_rank=tokens / seconds / world_size if has_rate else None,
        timed_seconds=seconds,
        timed_samples=samples,
        timed_tokens=tokens,
        slots_per_second=slots / seconds if has_rate else None,
        timed_slots=slots,
    )


def memory_of(ranks: Sequence[RankRecord]) -> Memory:
    """Return the peaks, in bytes: the largest over `ranks`."""
    return Memory(
        peak_device_allocated_bytes=_largest([rank.peak_device_allocated_bytes for rank in ranks]),
        peak_device_reserved_bytes=_largest([rank.peak_device_reserved_bytes for rank in ranks]),
        peak_process_bytes=max(rank.peak_process_bytes for rank in ranks),
    )


def _largest(peaks: Sequence[int | None]) -> int | None:
    return max((peak for peak in peaks if peak is not None), default=None)
