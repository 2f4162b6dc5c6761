"""Names what takes the time in a step, the largest first, with its evidence and what to try; rules in a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gradwire.compare.format import percent, processes, seconds, times
from gradwire.compare.remedies import (
    Finding,
    batch,
    bubble,
    bubble_by_formula,
    communication,
    compute,
    crowded,
    input_wait,
    not_recorded,
    optimizer,
    straggler,
    unaccounted,
)
from gradwire.compare.situation import Situation
from gradwire.documents.comparison_schema import Cause
from gradwire.documents.measurement_schema import TimeSplit
from gradwire.measure.time_split import step_of

# A part that takes less of the step than this is no cause.
_LEAST_SHARE = 0.10
# With a baseline, a part that grew by less than this share of the step is no cause of a loss.
_LEAST_GROWTH = 0.03


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """`explain` turns a part's seconds and share of the step into a finding.

    `only_as_growth`: the part is what a step is for, so it is a cause only where it grew over the baseline's.
    `always_whole`: it is no part of ideal at any size, so the baseline's share of it is not taken off.
    """

    part: str
    explain: Callable[[float, float, TimeSplit, Situation], Finding]
    only_as_growth: bool = False
    always_whole: bool = False


RULES: tuple[Rule, ...] = (
    Rule(part="input_wait", explain=input_wait, always_whole=True),
    Rule(part="exposed_communication", explain=communication),
    Rule(part="pipeline_bubble", explain=bubble),
    Rule(part="straggler_wait", explain=straggler),
    Rule(part="compute", explain=compute, only_as_growth=True),
    Rule(part="optimizer", explain=optimizer),
    Rule(part="other", explain=unaccounted),
)


def causes_of(split: TimeSplit | None, situation: Situation, *, explains_loss: bool = False) -> list[Cause]:
    """Return the causes, the largest first; empty where nothing stands out.

    `explains_loss`: the cell scales less than well, and its causes are ranked by what they add to the baseline's step.
    For each part that is its seconds less the baseline's (strong scaling: less the baseline's share of them, its
    seconds x its size / this size), so that over all parts these add up to what the step takes beyond ideal; only the
    wait for input counts whole, since removing it would bring that much at any size.
    Otherwise, and without a baseline's split, parts are ranked by their seconds. More processes than cores come before
    whatever they may have caused themselves; see `_beyond_crowding`. Without a split only what the sizes alone say is
    returned, and that no split was recorded.
    """
    crowd = crowded(situation)
    found = [] if crowd is None else [_cause(crowd, None, None)]
    if split is None:
        return [*found, *(_cause(finding, None, None) for finding in _without_split(situation, explains_loss))]
    step = step_of(split)
    if step <= 0:
        return found
    as_growth = explains_loss and situation.baseline_split is not None
    ranked = []
    for rule in RULES:
        mine: float = getattr(split, rule.part) or 0.0
        is_growth = as_growth and not rule.always_whole
        amount = mine - _ideal(rule.part, situation) if is_growth else mine
        least = _LEAST_GROWTH if is_growth else _LEAST_SHARE
        if (rule.only_as_growth and not as_growth) or amount < least * step:
            continue
        finding = rule.explain(amount, amount / step, split, situation)
        ranked.append((finding.is_root, amount, _cause(finding, amount, step, is_growth=is_growth)))
    ranked.sort(key=lambda entry: (not entry[0], -entry[1]))
    causes = _merged([cause for _, _, cause in ranked])
    beyond = [cause for cause in causes[:1] if crowd is not None and _beyond_crowding(cause, situation)]
    return [*beyond, *found, *causes[len(beyond) :]]


def _beyond_crowding(cause: Cause, situation: Situation) -> bool:
    """Return whether `cause` takes more of the step than its processes' waits for a core can.

    Of p processes on c cores each has a core for c/p of the time at least, so up to 1 - c/p of the step is waiting for
    one, and shows as any of the parts; slower compute is the crowd itself, whatever its share.
    """
    return (
        cause.kind != "slow-compute" and (cause.share or 0.0) > 1 - situation.cpu_count / situation.processes_per_node
    )


def _ideal(part: str, situation: Situation) -> float:
    if situation.baseline_split is None or situation.baseline_num_gpus is None:
        return 0.0
    theirs: float = getattr(situation.baseline_split, part) or 0.0
    return theirs if situation.scaling == "weak" else theirs * situation.baseline_num_gpus / situation.num_gpus


def _without_split(situation: Situation, explains_loss: bool) -> list[Finding]:
    if not explains_loss:
        return []
    by_formula = [finding for finding in (bubble_by_formula(situation), batch(situation)) if finding is not None]
    return [*by_formula, not_recorded()]


def _merged(causes: list[Cause]) -> list[Cause]:
    """Two parts with one root (a batch that is too small slows compute and shows the optimizer) are one cause."""
    kept: dict[str, Cause] = {}
    for cause in causes:
        if cause.kind in kept:
            first = kept[cause.kind]
            kept[cause.kind] = Cause(
                kind=first.kind,
                seconds=_sum(first.seconds, cause.seconds),
                share=_sum(first.share, cause.share),
                evidence=f"{first.evidence}; {cause.evidence}",
                remedies=first.remedies,
            )
        else:
            kept[cause.kind] = cause
    return list(kept.values())


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _cause(finding: Finding, amount: float | None, step: float | None, *, is_growth: bool = False) -> Cause:
    evidence = finding.evidence
    if amount is not None and step is not None:
        more = " more than ideal" if is_growth else ""
        evidence = f"{seconds(amount)}{more} of a step of {seconds(step)} ({percent(amount / step)}): {evidence}"
    return Cause(
        kind=finding.kind,
        seconds=amount,
        share=None if amount is None or not step else amount / step,
        evidence=evidence,
        remedies=list(finding.remedies),
    )


def cause_in_short(cause: Cause) -> str:
    """Return a cause as one line: name, share, and the first thing to try."""
    share = "" if cause.share is None else f", {percent(cause.share)} of the step"
    first = f"; try first: {cause.remedies[0].action}" if cause.remedies else ""
    gain = cause.remedies[0].predicted_speedup if cause.remedies else None
    return f"{cause.kind}{share}{first}" + ("" if gain is None else f" (at most {times(gain)})")


def crowd_of(situation: Situation) -> str | None:
    """Return why a machine is too small for the processes on it, in words; None where it is not."""
    if crowded(situation) is None:
        return None
    cores = "1 core" if situation.cpu_count == 1 else f"{situation.cpu_count} cores"
    return f"{processes(situation.processes_per_node)} on {cores}"
