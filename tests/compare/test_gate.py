"""The regression gate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from gradwire.compare.gate import changes_of, other_machine
from gradwire.errors import UsageError

Make = Callable[..., Any]


def test_a_cell_below_the_threshold_has_not_met_it(ran: Make, compared: Make) -> None:
    before = compared(ran(num_gpus=1), ran(num_gpus=2), ran("deepspeed", 1))
    after = compared(ran(num_gpus=1, seconds=1.04), ran(num_gpus=2, seconds=1.1), ran("deepspeed", 1, seconds=0.5))
    changes = changes_of(before, after, fail_below=0.95)
    assert [(change.backend, change.num_gpus, change.is_met) for change in changes] == [
        ("native", 1, True),
        ("native", 2, False),
        ("deepspeed", 1, True),
    ]
    assert changes[1].ratio == pytest.approx(1 / 1.1)
    assert changes[1].interval is None


def test_exactly_the_threshold_is_met(ran: Make, compared: Make) -> None:
    (change,) = changes_of(compared(ran(seconds=1.0)), compared(ran(seconds=2.0)), fail_below=0.5)
    assert change.is_met


def test_repeats_of_both_give_an_interval(ran: Make, compared: Make) -> None:
    before = compared(*(ran(seconds=seconds, repeat=number) for number, seconds in enumerate((1.0, 1.01, 1.02))))
    after = compared(*(ran(seconds=seconds, repeat=number) for number, seconds in enumerate((1.1, 1.11, 1.12))))
    (change,) = changes_of(before, after, fail_below=0.95)
    assert change.interval is not None
    assert change.interval.low < change.ratio < change.interval.high < 0.95  # type: ignore[operator]


def test_a_cell_that_fails_now_has_not_met_it_and_one_not_asked_for_is_left_out(
    ran: Make, failed: Make, compared: Make
) -> None:
    before = compared(ran(num_gpus=1), ran(num_gpus=2), ran(num_gpus=4))
    after = compared(ran(num_gpus=1), failed(num_gpus=2, reason="out of memory"))
    one, two = changes_of(before, after, fail_below=0.95)
    assert one.is_met
    assert (two.is_met, two.ratio, two.reason) == (False, None, "out of memory")


def test_tokens_are_never_held_against_samples(ran: Make, compared: Make) -> None:
    before = compared(ran())
    samples = replace(before.cells[0], tokens_per_second=None)
    for old, new in ((samples, before.cells[0]), (before.cells[0], samples)):
        (change,) = changes_of(replace(before, cells=[old]), replace(before, cells=[new]), fail_below=0.95)
        assert (change.before, change.after, change.ratio) == (4.0, 4.0, 1.0)


def test_what_trained_something_else_is_refused_with_what_differs(ran: Make, compared: Make) -> None:
    with pytest.raises(UsageError, match="native on 1: precision: bf16-true against fp32"):
        changes_of(compared(ran()), compared(ran(precision="bf16-true")), fail_below=0.95)
    with pytest.raises(UsageError, match="none of these backends and sizes"):
        changes_of(compared(ran()), compared(ran(num_gpus=2)), fail_below=0.95)


def test_another_machine_is_said(ran: Make, compared: Make) -> None:
    comparison = compared(ran())
    assert other_machine(comparison, comparison) is None
    assert "another kind of machine" in str(other_machine(comparison, replace(comparison, machines=["f" * 12])))
