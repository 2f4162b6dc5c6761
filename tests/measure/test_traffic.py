"""What a rank communicated is averaged over the timed steps."""

from __future__ import annotations

import pytest

from gradwire.documents.measurement_schema import Traffic
from gradwire.measure.traffic import StepTraffic, mean_traffic
from tests.measure.conftest import Measure, PlanMaker, RecordMaker


def step(payload_bytes: int, seconds: float | None = 0.5, exposed: float | None = None) -> StepTraffic:
    return StepTraffic(
        gradient_bytes=100,
        payload_bytes=payload_bytes,
        wire_bytes=2 * payload_bytes,
        communication_seconds=seconds,
        exposed_seconds=exposed,
    )


def test_means_leave_out_the_warmup_and_what_a_clock_spoilt() -> None:
    found = mean_traffic([step(100, 9.0), step(10, 0.25), step(20, 0.75), step(90, 90.0)], timed=[1, 2])
    assert found == Traffic(gradient_bytes=100, payload_bytes=15, wire_bytes=30, communication_seconds=0.5)


@pytest.mark.parametrize("steps", [[], [step(10)]])
def test_without_a_timed_step_there_is_none(steps: list[StepTraffic]) -> None:
    assert mean_traffic(steps, timed=[]) is None


def test_seconds_that_one_step_lacks_are_the_means_of_the_others() -> None:
    found = mean_traffic([step(10, None), step(10, 0.4, 0.1), step(10, 0.6, 0.15)], timed=[0, 1, 2])
    assert found is not None
    assert (found.communication_seconds, found.exposed_seconds, found.overlap_fraction) == (0.5, 0.125, 0.75)


def test_overlap_is_not_known_without_both_times() -> None:
    for steps in ([step(10, None, 0.1)], [step(10, 0.5)], [step(10, 0.0, 0.0)]):
        found = mean_traffic(steps, timed=[0])
        assert found is not None
        assert found.overlap_fraction is None
    more_than_all = mean_traffic([step(10, 0.1, 0.2)], timed=[0])
    assert more_than_all is not None
    assert more_than_all.overlap_fraction == 0


def test_the_measurement_carries_it(plan: PlanMaker, record: RecordMaker, measure: Measure) -> None:
    ranks = [record([1.0, 1.0]), record([1.0, 1.0])]
    counted = measure(plan(), ranks, traffic=[step(100), step(10)]).communication
    assert counted is not None
    assert counted.payload_bytes == 10
    assert measure(plan(), ranks).communication is None
    with pytest.raises(ValueError, match="traffic has 1"):
        measure(plan(), ranks, traffic=[step(100)])
