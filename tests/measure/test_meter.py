"""The meter, driven by a clock that the test turns."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradwire.errors import UsageError
from gradwire.measure.meter import ThroughputMeter


@dataclass
class Clock:
    """A clock that stands still until it is turned."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now

    def turn(self, seconds: float) -> None:
        self.now += seconds


# Multiples of a power of two: sums of them are exact.
SECONDS = st.integers(1, 2**20).map(lambda ticks: ticks / 1024)
STEPS = st.lists(st.tuples(SECONDS, st.integers(0, 64), st.integers(0, 4096)), min_size=1, max_size=20)


def started(*, warmup_steps: int = 0) -> tuple[ThroughputMeter, Clock]:
    clock = Clock()
    meter = ThroughputMeter(clock=clock, warmup_steps=warmup_steps)
    meter.start()
    return meter, clock


def test_a_step_lasts_from_the_end_of_the_one_before() -> None:
    meter, clock = started()
    clock.turn(2.0)
    meter.step(samples=4, tokens=64)
    clock.turn(0.5)
    meter.step(samples=8, tokens=128)
    assert meter.step_seconds == (2.0, 0.5)
    assert meter.samples == (4, 8)
    assert meter.tokens == (64, 128)
    assert meter.samples_per_second == 12 / 2.5
    assert meter.tokens_per_second == 192 / 2.5


def test_warmup_steps_are_recorded_but_not_timed() -> None:
    meter, clock = started(warmup_steps=2)
    for seconds in (30.0, 5.0, 0.5, 0.25):
        clock.turn(seconds)
        meter.step(samples=1, tokens=10)
    assert meter.step_seconds == (30.0, 5.0, 0.5, 0.25)
    assert (meter.timed_steps, meter.timed_seconds, meter.timed_samples, meter.timed_tokens) == (2, 0.75, 2, 20)
    assert meter.tokens_per_second == 20 / 0.75


def test_there_is_no_rate_before_a_timed_step_has_ended() -> None:
    meter, clock = started(warmup_steps=1)
    assert meter.samples_per_second is None
    clock.turn(1.0)
    meter.step(samples=1, tokens=1)
    assert meter.timed_steps == 0
    assert meter.tokens_per_second is None


def test_steps_that_took_no_time_have_no_rate() -> None:
    meter, _ = started()
    meter.step(samples=1, tokens=1)
    assert meter.step_seconds == (0.0,)
    assert meter.tokens_per_second is None


def test_time_between_pause_and_resume_counts_in_no_step() -> None:
    meter, clock = started()
    clock.turn(1.0)
    meter.step(samples=1, tokens=1)
    clock.turn(0.5)
    meter.pause()
    clock.turn(100.0)
    meter.resume()
    clock.turn(0.25)
    meter.pause()
    clock.turn(7.0)
    meter.resume()
    clock.turn(0.125)
    meter.step(samples=1, tokens=1)
    assert meter.step_seconds == (1.0, 0.875)
    assert meter.paused_seconds == 107.0


@given(steps=STEPS, warmup_steps=st.integers(0, 5))
def test_throughput_times_time_is_the_work(steps: list[tuple[float, int, int]], warmup_steps: int) -> None:
    meter, clock = started(warmup_steps=warmup_steps)
    for seconds, samples, tokens in steps:
        clock.turn(seconds)
        meter.step(samples=samples, tokens=tokens)
    timed = steps[warmup_steps:]
    if not timed:
        assert meter.tokens_per_second is None
        return
    assert meter.timed_seconds == sum(seconds for seconds, _, _ in timed)
    assert meter.tokens_per_second is not None
    assert meter.samples_per_second is not None
    assert math.isclose(meter.tokens_per_second * meter.timed_seconds, sum(tokens for _, _, tokens in timed))
    assert math.isclose(meter.samples_per_second * meter.timed_seconds, sum(samples for _, samples, _ in timed))


@given(steps=STEPS, pauses=st.lists(SECONDS, max_size=20))
def test_pauses_change_no_step(steps: list[tuple[float, int, int]], pauses: list[float]) -> None:
    plain, plain_clock = started()
    paused, paused_clock = started()
    for number, (seconds, samples, tokens) in enumerate(steps):
        plain_clock.turn(seconds)
        plain.step(samples=samples, tokens=tokens)
        if number < len(pauses):
            paused.pause()
            paused_clock.turn(pauses[number])
            paused.resume()
        paused_clock.turn(seconds)
        paused.step(samples=samples, tokens=tokens)
    assert paused.step_seconds == plain.step_seconds


def test_the_work_of_a_step_is_that_of_all_its_micro_steps() -> None:
    # karpathy/nanochat#177 and axolotl#3688: one micro-step's tokens over the whole step's time, too low by the
    # accumulation. The meter is told once per optimizer step, so what it is told is the sum.
    meter, clock = started()
    micro_steps = [(2, 30), (2, 17), (2, 25), (1, 3)]
    clock.turn(4 * 0.25)
    meter.step(samples=sum(samples for samples, _ in micro_steps), tokens=sum(tokens for _, tokens in micro_steps))
    assert meter.step_seconds == (1.0,)
    assert meter.tokens_per_second == 75.0
    assert meter.samples_per_second == 7.0


def test_a_known_time_comes_back_in_seconds() -> None:
    # DeepSpeed#2090: milliseconds read as seconds.
    meter, clock = started()
    clock.turn(0.015625)
    meter.step(samples=1, tokens=1)
    assert meter.step_seconds == (0.015625,)
    assert meter.samples_per_second == 64.0


def test_the_record_has_every_step_and_the_peaks() -> None:
    meter, clock = started(warmup_steps=1)
    clock.turn(1.0)
    meter.step(samples=4, tokens=64)
    clock.turn(2.0)
    meter.step(samples=4, tokens=64)
    record = meter.record(peak_process_bytes=7, peak_device_allocated_bytes=5, peak_device_reserved_bytes=6)
    assert record.step_seconds == [1.0, 2.0]
    assert (record.samples, record.tokens) == ([4, 4], [64, 64])
    assert (record.slots, record.untimed_steps, record.paused_seconds, record.notes) == ([64, 64], [0], 0.0, [])
    assert record.peak_process_bytes == 7
    assert (record.peak_device_allocated_bytes, record.peak_device_reserved_bytes) == (5, 6)


def run_steps(meter: ThroughputMeter, clock: Clock, seconds: Sequence[float]) -> None:
    for took in seconds:
        clock.turn(took)
        meter.step(samples=2, tokens=8)


def test_a_clock_that_goes_backwards_costs_the_step_its_timing_and_nothing_else() -> None:
    meter, clock = started()
    run_steps(meter, clock, [1.0, -3600.0, 0.5, 0.25])
    assert meter.step_seconds == (1.0, 0.0, 0.5, 0.25)
    assert meter.jumped_steps == (1,)
    assert meter.timed == (0, 2, 3)
    assert (meter.timed_seconds, meter.timed_tokens, meter.tokens_per_second) == (1.75, 24, 24 / 1.75)
    assert meter.notes == (
        "the clock went backwards in step 2, left out of every timing: "
        "use a monotonic clock, such as time.perf_counter",
    )


def test_a_clock_that_goes_backwards_in_a_pause_harms_no_step() -> None:
    meter, clock = started()
    clock.turn(0.5)
    meter.pause()
    clock.turn(-1000.0)
    meter.resume()
    clock.turn(0.25)
    meter.step(samples=1, tokens=1)
    assert (meter.step_seconds, meter.paused_seconds, meter.jumped_steps) == ((0.75,), 0.0, ())


def test_a_clock_that_is_put_forward_by_hours_is_left_out_and_said() -> None:
    meter, clock = started(warmup_steps=1)
    run_steps(meter, clock, [9000.0, 1.0, 7200.0, 1.0, 2.0])
    assert meter.jumped_steps == (2,)
    assert (meter.timed, meter.timed_seconds, meter.tokens_per_second) == ((1, 3, 4), 4.0, 6.0)
    assert meter.notes == (
        "step 3 took up to 7,200 s, more than 100 times the median step: taken for a jump of the clock "
        "(the time was set, or the machine slept) and left out of every timing",
    )


@pytest.mark.parametrize(
    "seconds",
    [
        [3599.0, 1.0, 1.0],  # a slow step, not an hour
        [3600.0, 36.5, 37.0],  # an hour among long steps
        [7200.0],  # nothing to hold it against
        [7200.0, 7200.0],
    ],
)
def test_a_long_step_is_not_taken_for_a_jump(seconds: list[float]) -> None:
    meter, clock = started()
    run_steps(meter, clock, seconds)
    assert (meter.jumped_steps, meter.notes) == ((), ())
    assert meter.timed_seconds == sum(seconds)


def test_steps_of_hours_can_be_asked_for() -> None:
    clock = Clock()
    meter = ThroughputMeter(clock=clock, jump_seconds=None)
    meter.start()
    run_steps(meter, clock, [1.0, 7200.0])
    assert meter.timed_seconds == 7201.0


def test_many_jumps_are_said_in_one_sentence() -> None:
    meter, clock = started()
    run_steps(meter, clock, [-1.0] * 7 + [1.0])
    assert "in steps 1, 2, 3, 4, 5 and 2 more, left out" in meter.notes[0]


def test_padding_is_in_the_slots_and_not_in_the_tokens() -> None:
    meter, clock = started()
    for tokens, slots in ((30, 64), (17, 32), (5, None)):
        clock.turn(0.5)
        meter.step(samples=2, tokens=tokens, slots=slots)
    assert (meter.tokens, meter.slots) == ((30, 17, 5), (64, 32, 5))
    assert (meter.tokens_per_second, meter.slots_per_second) == (52 / 1.5, 101 / 1.5)
    assert (meter.timed_tokens, meter.timed_slots) == (52, 101)


def test_ranks_that_share_a_batch_count_it_once() -> None:
    # A tensor-parallel pair: both are given the same 4 sequences of 16 tokens.
    clock = Clock()
    pair = [ThroughputMeter(clock=clock, counts=rank == 0) for rank in range(2)]
    for meter in pair:
        meter.start()
    clock.turn(2.0)
    for meter in pair:
        meter.step(samples=4, tokens=64, slots=80)
    assert sum(meter.timed_tokens for meter in pair) == 64
    assert sum(meter.timed_slots for meter in pair) == 80
    assert [meter.samples_per_second for meter in pair] == [2.0, 0.0]
    assert [meter.step_seconds for meter in pair] == [(2.0,), (2.0,)]


def test_a_resumed_run_goes_on_where_the_checkpoint_was_and_warms_up_again() -> None:
    first, clock = started(warmup_steps=1)
    run_steps(first, clock, [5.0, 1.0])
    first.pause()
    clock.turn(10.0)
    first.resume()
    run_steps(first, clock, [-7.0, 2.0])
    saved = json.loads(json.dumps(first.state_dict()))
    clock.turn(0.5)  # a step that the checkpoint does not hold

    later = Clock(now=3.0)
    second = ThroughputMeter(clock=later, warmup_steps=1)
    second.load_state_dict(saved)
    second.start()
    run_steps(second, later, [8.0, 4.0])
    assert second.step_seconds == (5.0, 1.0, 0.0, 2.0, 8.0, 4.0)
    assert second.timed == (1, 3, 5)
    assert second.timed_seconds == 7.0
    assert second.tokens == (8,) * 6
    assert (second.jumped_steps, second.paused_seconds) == ((2,), 10.0)


def test_a_window_of_a_long_run_is_that_of_its_steps() -> None:
    meter, clock = started(warmup_steps=1)
    with pytest.raises(UsageError, match="no step is finished yet"):
        meter.last_step_seconds  # noqa: B018
    run_steps(meter, clock, [1.0] * 100_000)
    run_steps(meter, clock, [4000.0, 2.0, -1.0, 3.0])
    assert (meter.steps, meter.last_step_seconds) == (100_004, 3.0)
    # Neither the jump ahead nor the one back.
    assert meter.timed_since(99_999) == (6.0, 3 * 2, 3 * 8, 3 * 8)
    assert meter.timed_since(0).seconds == meter.timed_seconds == 99_999 + 5.0
    assert meter.timed_since(meter.steps) == (0.0, 0, 0, 0)


def test_a_state_that_is_none_is_refused() -> None:
    meter, _ = started()
    with pytest.raises(UsageError, match=r"load_state_dict\(\) comes before start\(\)"):
        meter.load_state_dict(meter.state_dict())
    fresh = ThroughputMeter(clock=Clock())
    with pytest.raises(UsageError, match="not the state of a ThroughputMeter: it has epoch"):
        fresh.load_state_dict({"epoch": 3})
    with pytest.raises(UsageError, match="not the state of a ThroughputMeter"):
        fresh.load_state_dict({**fresh.state_dict(), "tokens": [1]})


@pytest.mark.parametrize("reading", [math.nan, math.inf])
def test_a_clock_that_returns_no_time_is_refused(reading: float) -> None:
    with pytest.raises(UsageError, match="must return seconds"):
        ThroughputMeter(clock=lambda: reading).start()


def test_misuse_says_what_is_missing() -> None:
    meter = ThroughputMeter(clock=Clock())
    with pytest.raises(UsageError, match=r"step\(\) before start\(\)"):
        meter.step(samples=1, tokens=1)
    with pytest.raises(UsageError, match=r"pause\(\) before start\(\)"):
        meter.pause()
    with pytest.raises(UsageError, match=r"resume\(\) without a pause\(\)"):
        meter.resume()
    meter.start()
    with pytest.raises(UsageError, match="started already"):
        meter.start()
    meter.pause()
    with pytest.raises(UsageError, match=r"pause\(\) while the meter is paused"):
        meter.pause()
    with pytest.raises(UsageError, match=r"step\(\) while the meter is paused; call resume\(\)"):
        meter.step(samples=1, tokens=1)


@pytest.mark.parametrize("bad", [-1, 1.5, None])
def test_counts_that_are_none_are_refused(bad: int) -> None:
    meter, clock = started()
    clock.turn(1.0)
    with pytest.raises(UsageError, match="samples must be"):
        meter.step(samples=bad, tokens=1)
    with pytest.raises(UsageError, match="tokens must be"):
        meter.step(samples=1, tokens=bad)
    with pytest.raises(UsageError, match="warmup_steps must be"):
        ThroughputMeter(clock=clock, warmup_steps=bad)
    assert meter.step_seconds == ()
