"""Splits the mean step of a run into what its seconds were spent on, from what each rank read off its clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from gradwire.documents.measurement_schema import TimeSplit
from gradwire.measure.quantiles import mean, median

PARTS = tuple(name for name in TimeSplit.__struct_fields__ if name != "slowest_rank")
"""The parts of a time split, in the order in which a step spends them."""

Collectives = Literal["none", "stopped", "inseparable"]
"""What became of the collectives in the passes: there are none (one data-parallel rank), they were turned off in some
more steps, or they cannot be told from compute."""

# A rank stands out where the median rank waits for it for at least this share of the step.
_STANDS_OUT = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class RankLaps:
    """One rank's seconds in each step, by what they were spent on; the lists are equally long.

    `passes`: forward and backward, with the collectives that run in them; in a pipeline, only while the stage ran a
    chunk. `pipeline_bubble`: what a stage waited for others. `optimizer`: clipping and update. What is left of
    `step` belongs to none of them. `lone_passes`: the passes of further steps, in which no gradient was sent; empty
    where there were no such steps. `micro_steps`: the passes of each step's micro-steps; none in a pipeline.
    """

    step: list[float]
    input_wait: list[float]
    passes: list[float]
    pipeline_bubble: list[float]
    optimizer: list[float]
    lone_passes: list[float]
    micro_steps: list[list[float]] = field(default_factory=list)

    def of(self, steps: Sequence[int]) -> RankLaps:
        """Return the laps of `steps` alone, counted from 0: those that a timing may rest on."""
        return RankLaps(
            step=[self.step[step] for step in steps],
            input_wait=[self.input_wait[step] for step in steps],
            passes=[self.passes[step] for step in steps],
            pipeline_bubble=[self.pipeline_bubble[step] for step in steps],
            optimizer=[self.optimizer[step] for step in steps],
            lone_passes=self.lone_passes,
            micro_steps=[self.micro_steps[step] for step in steps] if self.micro_steps else [],
        )


def split_time(ranks: Sequence[RankLaps], collectives: Collectives) -> TimeSplit | None:
    """Return the mean step of `ranks`, split, as the median rank spent it; None without a step. Give timed steps only.

    The step is the slowest rank's in each step, as in a measurement, and its parts sum to it. A rank's own time is its
    wait for input plus its passes without collectives; the median rank is the one in the middle by its own time, the
    faster of the two where their number is even.

    `none`: all passes are compute. `stopped`: median passes with collectives are compared with median passes without;
    of what is more, as much as the slowest rank's own time is above the median rank's is the wait for it, and the rest
    is exposed communication. `inseparable`: that is not known, so it is None, and compute holds all of it.
    What the slowest rank ends a step later than the median rank is a wait for it too, or, in a pipeline, bubble.

    Raises ValueError where the records contradict each other.
    """
    _check(ranks, collectives)
    if not ranks[0].step:
        return None
    order = sorted(range(len(ranks)), key=lambda number: _own_time(ranks[number], collectives))
    middle, slowest = ranks[order[(len(ranks) - 1) // 2]], order[-1]
    step = mean([max(seconds) for seconds in zip(*(rank.step for rank in ranks), strict=True)])
    late = _own_time(ranks[slowest], collectives) - _own_time(middle, collectives)
    passes, bubble, tail = mean(middle.passes), mean(middle.pipeline_bubble), step - mean(middle.step)
    is_pipeline = any(bubble > 0 for rank in ranks for bubble in rank.pipeline_bubble)
    exposed: float | None
    match collectives:
        case "none":
            compute, exposed = passes, 0.0
            straggler = min(late, bubble)
            bubble -= straggler
        case "stopped":
            compute = passes * _lone_share(middle)
            straggler = min(late, passes - compute)
            exposed = passes - compute - straggler
        case "inseparable":
            compute, exposed, straggler = passes, None, 0.0
    if is_pipeline:
        bubble += tail
    else:
        straggler += tail
    input_wait, optimizer = mean(middle.input_wait), mean(middle.optimizer)
    known = math.fsum([input_wait, compute, exposed or 0.0, bubble, optimizer, straggler])
    return TimeSplit(
        input_wait=input_wait,
        compute=compute,
        exposed_communication=exposed,
        pipeline_bubble=bubble,
        optimizer=optimizer,
        straggler_wait=straggler,
        # Only rounding can make it negative: a rank's laps lie within its step.
        other=max(0.0, step - known),
        slowest_rank=slowest if collectives != "inseparable" and step > 0 and late >= _STANDS_OUT * step else None,
    )


def step_of(split: TimeSplit) -> float:
    """Return the mean step that the parts sum to, in seconds."""
    parts: list[float] = [getattr(split, part) or 0.0 for part in PARTS]
    return math.fsum(parts)


def _own_time(rank: RankLaps, collectives: Collectives) -> float:
    share = _lone_share(rank) if collectives == "stopped" else 1.0
    return mean(rank.input_wait) + mean(rank.passes) * share


def _lone_share(rank: RankLaps) -> float:
    """The passes without collectives over those with them, at most 1.

    Of medians, since the steps without are few: one that the machine disturbed would decide a mean.
    """
    with_collectives = median(rank.passes)
    return min(1.0, median(rank.lone_passes) / with_collectives) if with_collectives > 0 else 1.0


def _check(ranks: Sequence[RankLaps], collectives: Collectives) -> None:
    if not ranks:
        raise ValueError("no rank recorded anything")
    steps = len(ranks[0].step)
    for number, rank in enumerate(ranks):
        laps = (rank.input_wait, rank.passes, rank.pipeline_bubble, rank.optimizer)
        if any(len(seconds) != steps for seconds in (rank.step, *laps)):
            raise ValueError(f"rank {number} recorded another number of steps than rank 0's {steps}")
        if any(second < 0 for seconds in (rank.step, *laps, rank.lone_passes) for second in seconds):
            raise ValueError(f"rank {number} recorded less than 0 seconds")
        if collectives == "stopped" and steps and not rank.lone_passes:
            raise ValueError(f"rank {number} recorded no step without collectives")
