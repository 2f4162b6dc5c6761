"""The finding in a few sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradwire.compare.verdict import findings, verdict
from gradwire.documents.comparison_schema import Comparison

Make = Callable[..., Any]


def test_doubts_lead_then_the_largest_size_then_speed_then_failures(example: tuple[Comparison, Any]) -> None:
    assert findings(example[0]) == [
        "This machine is too noisy for a verdict on 4 processes: 4 processes on 2 cores.",
        "Scaling from 1 to 4 processes reaches, of ideal: native 76.9 % (undecided, one run), accelerate 62.5 % "
        "(undecided, one run).",
        "Fastest on 4 processes: native with 1,969 tokens per second.",
        "1 of 9 cells failed: deepspeed on 4.",
    ]


def test_one_size_gives_speed_but_no_efficiency(ran: Make, compared: Make) -> None:
    assert verdict(compared(ran("native", 2), ran("deepspeed", 2, seconds=0.5))) == (
        "No scaling efficiency: only one size was measured. "
        "Fastest on 2 processes: deepspeed with 256 tokens per second."
    )
    assert verdict(compared(ran())).endswith("On 1 process native trained 64 tokens per second.")


def test_unlike_runs_give_no_efficiency(ran: Make, compared: Make) -> None:
    text = verdict(compared(ran(num_gpus=1), ran(num_gpus=2, precision="bf16-true")))
    assert text.startswith("No scaling efficiency: no size could be compared with a smaller one.")


def test_nothing_measured_is_said(failed: Make, compared: Make) -> None:
    assert verdict(compared(failed(reason="no"), failed(num_gpus=2, reason="no"))) == (
        "Nothing was measured: all 2 cells failed."
    )
    assert verdict(compared(failed(reason="no"))) == "Nothing was measured: the only cell failed."


def test_runs_that_were_all_warm_up_are_not_called_failed(ran: Make, compared: Make) -> None:
    assert verdict(compared(ran(warmup_steps=3))).startswith("Nothing was timed: what ran was all warm-up")
