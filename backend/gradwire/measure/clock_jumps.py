"""Tells steps in which the clock jumped from steps that were slow, and says so in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gradwire.measure.quantiles import median

_TIMES_THE_MEDIAN = 100
_SHOWN_STEPS = 5


def forward_jumps(
    seconds: Mapping[int, float], *, backward: Sequence[int], at_least_seconds: float | None
) -> list[int]:
    """Return the steps of `seconds` (step from 0: its seconds) that are taken for forward jumps of the clock.

    Those are steps of `at_least_seconds` or more (None: there are none) that took 100 times the median of the others.
    A step alone is never one: there is nothing to hold it against. `backward` are the steps known to have jumped.
    """
    if at_least_seconds is None:
        return []
    known = {step: took for step, took in seconds.items() if step not in backward}
    long = {step: took for step, took in known.items() if took >= at_least_seconds}
    if not long or len(long) == len(known):
        return []
    usual = median([took for step, took in known.items() if step not in long])
    return [step for step, took in long.items() if took >= _TIMES_THE_MEDIAN * usual]


def jump_notes(seconds: Sequence[float], *, backward: Sequence[int], forward: Sequence[int]) -> list[str]:
    """Return a sentence for each kind of jump there was; steps are counted from 1, as steps.jsonl does."""
    notes = []
    if backward:
        notes.append(
            f"the clock went backwards in {_steps(backward)}, left out of every timing: use a monotonic clock, "
            "such as time.perf_counter"
        )
    if forward:
        longest = max(seconds[step] for step in forward)
        notes.append(
            f"{_steps(forward)} took up to {longest:,.0f} s, more than {_TIMES_THE_MEDIAN} times the median step: "
            "taken for a jump of the clock (the time was set, or the machine slept) and left out of every timing"
        )
    return notes


def _steps(numbers: Sequence[int]) -> str:
    shown = ", ".join(str(number + 1) for number in numbers[:_SHOWN_STEPS])
    more = f" and {len(numbers) - _SHOWN_STEPS} more" if len(numbers) > _SHOWN_STEPS else ""
    return f"step{'s' if len(numbers) > 1 else ''} {shown}{more}"
