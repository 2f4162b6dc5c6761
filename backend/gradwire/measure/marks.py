"""Splits a step by the moments that were seen in it from outside: batches asked for, model called, optimizer run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Mark = Literal[
    "loader-begin", "loader-end", "pass", "evaluation", "aside-begin", "aside-end", "optimizer-begin", "optimizer-end"
]
"""`pass`: the model is called to train; `evaluation`: it is called in evaluation mode; `aside`: a checkpoint, or what a
library calls evaluation."""

Part = Literal["input_wait", "passes", "optimizer", "other", "excluded"]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepParts:
    """Seconds of one step by what they went to; `excluded` ones (evaluation, checkpoints) are not of the step."""

    input_wait: float = 0.0
    passes: float = 0.0
    optimizer: float = 0.0
    other: float = 0.0
    excluded: float = 0.0

    @property
    def seconds(self) -> float:
        """How long the step took."""
        return self.input_wait + self.passes + self.optimizer + self.other


def split_step(marks: Sequence[Mark], seconds: Sequence[float]) -> StepParts:
    """Return the parts of a step from its marks in order; `seconds[i]` passed between mark i-1 and mark i.

    The step begins before the first mark, where the one before it ended, and ends with the last. Waiting for input
    lasts from asking for a batch, or from the step's beginning, to the training pass that takes it. Evaluation lasts
    from where training was left, the step's beginning or the request for the first batch that is evaluated, to where it
    goes on, with the request for a batch that is trained.
    """
    parts: dict[Part, float] = {"input_wait": 0.0, "passes": 0.0, "optimizer": 0.0, "other": 0.0, "excluded": 0.0}
    excluded = _evaluated(marks)
    for place, (mark, took) in enumerate(zip(marks, seconds, strict=True)):
        parts["excluded" if place in excluded else _part(mark, marks[:place])] += took
    return StepParts(**parts)


def _part(mark: Mark, before: Sequence[Mark]) -> Part:
    """What the time that `mark` ends was spent on."""
    last = before[-1] if before else None
    match mark:
        case "loader-end":
            return "input_wait"
        case "pass":
            # Two calls in a row belong to one batch, or to a batch that no loader was asked for.
            return "passes" if last == "pass" else "other" if last in ("aside-end", "optimizer-begin") else "input_wait"
        case "optimizer-end":
            # An optimizer with a closure, as Lightning's, makes the passes itself; its own update is not told apart.
            return "passes" if last == "pass" else "optimizer"
        case "aside-end":
            return "excluded"
        case "loader-begin" | "optimizer-begin" if last == "loader-end":
            # A batch on its way to a closure or trained by nobody, or the end of an epoch and the next one's workers.
            return "input_wait"
        case "loader-begin" | "optimizer-begin" | "aside-begin" | "evaluation":
            return "passes" if last == "pass" else "other"


def _evaluated(marks: Sequence[Mark]) -> set[int]:
    """Places of the marks that end a stretch of evaluation."""
    found: set[int] = set()
    evaluations = [place for place, mark in enumerate(marks) if mark == "evaluation"]
    for place in evaluations:
        passes_before = [before for before in range(place) if marks[before] == "pass"]
        after = [later for later in range(place, len(marks)) if marks[later] == "pass"]
        begin = _first_request(marks, passes_before[-1], place) if passes_before else -1
        end = _last_request(marks, place, after[0]) if after else place
        found.update(range(begin + 1, end + 1))
    return found


def _first_request(marks: Sequence[Mark], left: int, place: int) -> int:
    """The mark after which evaluation began, after a training pass at `left`."""
    requests = [between for between in range(left, place) if marks[between] == "loader-begin"]
    return requests[0] if requests else place


def _last_request(marks: Sequence[Mark], place: int, trained: int) -> int:
    """The mark at which evaluation ended, before the training pass at `trained`."""
    requests = [between for between in range(place, trained) if marks[between] == "loader-begin"]
    return requests[-1] if requests else trained
