"""The parts of a mean step, from what each rank read; numbers that a float holds exactly."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields

from gradwire.documents.measurement_schema import TimeSplit
from gradwire.measure.time_split import Collectives, RankLaps, split_time

PARTS = [field.name for field in fields(TimeSplit) if field.name != "slowest_rank"]


def laps(
    step: float,
    *,
    input_wait: float = 0.0,
    passes: float = 0.0,
    bubble: float = 0.0,
    optimizer: float = 0.0,
    lone: float | None = None,
    steps: int = 2,
) -> RankLaps:
    """A rank whose steps are all alike."""
    return RankLaps(
        step=[step] * steps,
        input_wait=[input_wait] * steps,
        passes=[passes] * steps,
        pipeline_bubble=[bubble] * steps,
        optimizer=[optimizer] * steps,
        lone_passes=[] if lone is None else [lone],
    )


def split(**seconds: float | None) -> TimeSplit:
    slowest = seconds.pop("slowest_rank", None)
    rank = None if slowest is None else int(slowest)
    return TimeSplit(**{**dict.fromkeys(PARTS, 0.0), **seconds}, slowest_rank=rank)  # type: ignore[arg-type]


def test_one_rank_has_no_communication() -> None:
    alone = laps(8.0, input_wait=1.0, passes=5.0, optimizer=1.5)
    assert split_time([alone], "none") == split(input_wait=1.0, compute=5.0, optimizer=1.5, other=0.5)


def test_what_passes_take_beyond_lone_ones_is_communication() -> None:
    ranks = [laps(8.0, passes=6.0, optimizer=2.0, lone=4.5) for _ in range(4)]
    assert split_time(ranks, "stopped") == split(compute=4.5, exposed_communication=1.5, optimizer=2.0)


def test_fast_ranks_wait_for_a_slow_one() -> None:
    fast = laps(8.0, passes=8.0, lone=4.0)
    ranks = [fast, fast, laps(8.0, passes=8.0, lone=7.0), fast]
    expected = split(compute=4.0, straggler_wait=3.0, exposed_communication=1.0, slowest_rank=2)
    assert split_time(ranks, "stopped") == expected


def test_the_middle_of_two_ranks_is_the_faster() -> None:
    ranks = [laps(8.0, passes=8.0, lone=7.0), laps(8.0, passes=8.0, lone=4.0)]
    expected = split(compute=4.0, straggler_wait=3.0, exposed_communication=1.0, slowest_rank=0)
    assert split_time(ranks, "stopped") == expected


def test_a_slow_loader_on_one_rank_is_a_straggler_and_on_all_an_input_wait() -> None:
    fast = laps(8.0, passes=8.0, lone=4.0)
    slow = laps(8.0, input_wait=4.0, passes=4.0, lone=4.0)
    assert split_time([fast, slow], "stopped") == split(compute=4.0, straggler_wait=4.0, slowest_rank=1)
    assert split_time([slow, slow], "stopped") == split(compute=4.0, input_wait=4.0)


def test_a_later_end_of_the_slowest_rank_is_waited_for() -> None:
    ranks = [laps(8.0, passes=8.0, lone=8.0), laps(9.0, passes=8.0, lone=8.0)]
    assert split_time(ranks, "stopped") == split(compute=8.0, straggler_wait=1.0)


def test_passes_that_are_no_slower_with_communication_expose_none() -> None:
    ranks = [laps(8.0, passes=7.0, lone=7.5), laps(8.0, passes=7.0, lone=7.5)]
    assert split_time(ranks, "stopped") == split(compute=7.0, exposed_communication=0.0, other=1.0)


def test_one_disturbed_step_does_not_pass_for_communication() -> None:
    disturbed = RankLaps(
        step=[4.0, 4.0, 16.0],
        input_wait=[0.0] * 3,
        passes=[4.0, 4.0, 16.0],
        pipeline_bubble=[0.0] * 3,
        optimizer=[0.0] * 3,
        lone_passes=[4.0, 9.0, 4.0],
    )
    assert split_time([disturbed, disturbed], "stopped") == split(compute=8.0)


def test_inseparable_communication_is_not_known() -> None:
    ranks = [laps(8.0, passes=6.0, optimizer=2.0), laps(8.0, passes=6.0, optimizer=2.0)]
    assert split_time(ranks, "inseparable") == split(compute=6.0, exposed_communication=None, optimizer=2.0)


def test_a_pipeline_stage_waits_for_more_work_elsewhere_and_for_the_schedule() -> None:
    ranks = [laps(12.0, passes=6.0, bubble=6.0), laps(11.0, passes=8.0, bubble=3.0)]
    assert split_time(ranks, "none") == split(compute=6.0, straggler_wait=2.0, pipeline_bubble=4.0, slowest_rank=1)


def test_a_stage_that_ends_early_waits_in_the_bubble() -> None:
    ranks = [laps(10.0, passes=6.0, bubble=4.0), laps(9.0, passes=6.0, bubble=3.0), laps(8.0, passes=6.0, bubble=2.0)]
    assert split_time(ranks, "none") == split(compute=6.0, pipeline_bubble=4.0)


def test_no_timed_step_gives_no_split() -> None:
    assert split_time([laps(1.0, steps=0), laps(1.0, steps=0)], "stopped") is None


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ([], "no rank"),
        ([laps(1.0, lone=1.0), laps(1.0, lone=1.0, steps=3)], "rank 1 recorded another number of steps"),
        ([laps(1.0, passes=-1.0)], "rank 0 recorded less than 0"),
        ([laps(1.0)], "rank 0 recorded no step without collectives"),
    ],
)
def test_contradictions_are_refused(ranks: list[RankLaps], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split_time(ranks, "stopped")


SECONDS = st.floats(0.0, 100.0)
SHARES = st.tuples(SECONDS, SECONDS, SECONDS, SECONDS, SECONDS)


@given(
    ranks=st.lists(st.lists(SHARES, min_size=3, max_size=3), min_size=1, max_size=4),
    lone=SECONDS,
    collectives=st.sampled_from(["none", "stopped", "inseparable"]),
)
def test_parts_sum_to_the_step_and_none_is_negative(
    ranks: list[list[tuple[float, ...]]], lone: float, collectives: Collectives
) -> None:
    recorded = [
        RankLaps(
            step=[math.fsum(step) for step in steps],
            input_wait=[step[0] for step in steps],
            passes=[step[1] for step in steps],
            pipeline_bubble=[step[2] for step in steps],
            optimizer=[step[3] for step in steps],
            lone_passes=[lone],
        )
        for steps in ranks
    ]
    found = split_time(recorded, collectives)
    assert found is not None
    parts = [getattr(found, part) for part in PARTS]
    mean_step = math.fsum(max(rank.step[number] for rank in recorded) for number in range(3)) / 3
    assert math.fsum(part or 0.0 for part in parts) == pytest.approx(mean_step, abs=1e-9)
    assert min(part or 0.0 for part in parts) >= -1e-9
