"""The cost model's arithmetic, exactly, and its bucket rule against torch's own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gradwire.measure.communication_cost import (
    MEBIBYTE,
    GradientTensor,
    MethodCost,
    Step,
    Wire,
    advise,
    best_bucket_cap,
    ddp_buckets,
    step_seconds,
)

# 1024 x 256 fp32 elements are one MiB.
_MIB = {"rows": 1024, "columns": 256}
_PLAIN = MethodCost(name="plain", bytes_per_element=4)
_LINK = Wire(world_size=2, bytes_per_second=MEBIBYTE, latency_seconds=0.5)


def _step(*ready: float, compute: float = 8.0) -> Step:
    return Step(
        compute_seconds=compute, gradients=tuple(GradientTensor(**_MIB, ready_seconds=seconds) for seconds in ready)
    )


def test_a_bucket_that_is_ready_last_is_exposed_whole() -> None:
    # Two MiB over a link of one MiB per second, by an all-reduce between two: 2 s and the latency.
    assert step_seconds(_step(4.0, 8.0), _PLAIN, _LINK, bucket_cap_bytes=100 * MEBIBYTE) == 8 + 2 + 0.5


def test_buckets_that_are_ready_early_hide_behind_backward() -> None:
    assert step_seconds(_step(4.0, 8.0), _PLAIN, _LINK, bucket_cap_bytes=MEBIBYTE) == 8 + 1 + 0.5


def test_the_wire_serves_one_bucket_at_a_time() -> None:
    assert step_seconds(_step(8.0, 8.0), _PLAIN, _LINK, bucket_cap_bytes=MEBIBYTE) == 8 + 2 * (1 + 0.5)


def test_more_ranks_send_more_over_each_link() -> None:
    four = Wire(world_size=4, bytes_per_second=MEBIBYTE, latency_seconds=0.5)
    assert step_seconds(_step(8.0), _PLAIN, four, bucket_cap_bytes=None) == 8 + 1.5 + 0.5


def test_two_collectives_pay_latency_twice_and_arithmetic_is_in_between() -> None:
    method = MethodCost(name="int8", bytes_per_element=1, collectives=2, compression_seconds_per_byte=3 / MEBIBYTE)
    assert step_seconds(_step(8.0), method, _LINK, bucket_cap_bytes=None) == 8 + 3 + 0.25 + 2 * 0.5


def test_arithmetic_of_one_bucket_overlaps_the_wire_of_another() -> None:
    method = MethodCost(name="fp16", bytes_per_element=2, compression_seconds_per_byte=2 / MEBIBYTE)
    # Per bucket: 1 s, then 1 s on the wire with its latency, then 1 s; the second starts 1 s after the first.
    assert step_seconds(_step(8.0, 8.0), method, _LINK, bucket_cap_bytes=MEBIBYTE) == 8 + 1 + 1 + 1 + 1


def test_low_rank_factors_replace_matrices_that_shrink_enough() -> None:
    method = MethodCost(name="powersgd", bytes_per_element=4, collectives=2, matrix_approximation_rank=4)
    large = GradientTensor(rows=100, columns=50, ready_seconds=0)
    small = GradientTensor(rows=10, columns=10, ready_seconds=0)
    vector = GradientTensor(rows=100, columns=1, ready_seconds=0)
    assert method.payload_bytes([large, small, vector], world_size=2) == ((100 + 50) * 4 + 100 + 100) * 4


def test_one_factor_in_turn_is_half_of_both() -> None:
    both = MethodCost(name="powersgd", bytes_per_element=2, matrix_approximation_rank=4)
    one = MethodCost(name="alternating", bytes_per_element=2, matrix_approximation_rank=4, factors=1)
    matrices = [GradientTensor(rows=100, columns=50, ready_seconds=0)]
    assert one.payload_bytes(matrices, world_size=2) == both.payload_bytes(matrices, world_size=2) / 2


def test_what_is_gathered_grows_with_the_world() -> None:
    method = MethodCost(name="topk", bytes_per_element=0.08, gathered=True)
    matrices = [GradientTensor(rows=100, columns=50, ready_seconds=0)]
    assert method.payload_bytes(matrices, world_size=8) == 4 * method.payload_bytes(matrices, world_size=2)


def test_the_best_bucket_size_is_that_of_the_shortest_step() -> None:
    step = _step(2.0, 4.0, 6.0, 8.0)
    caps = (MEBIBYTE, 2 * MEBIBYTE, None)
    cap, seconds = best_bucket_cap(step, _PLAIN, _LINK, caps=caps)
    assert cap == MEBIBYTE
    assert seconds == min(step_seconds(step, _PLAIN, _LINK, bucket_cap_bytes=cap) for cap in caps)


def test_of_bucket_sizes_as_good_as_each_other_the_first_is_taken() -> None:
    fast = Wire(world_size=2, bytes_per_second=1000 * MEBIBYTE, latency_seconds=1e-4)
    assert best_bucket_cap(_step(4.0, 8.0), _PLAIN, fast, caps=(MEBIBYTE, None))[0] == MEBIBYTE


def test_compression_pays_below_a_link_speed_and_never_where_it_costs_more_than_it_saves() -> None:
    step = _step(2.0, 4.0, 6.0, 8.0)
    cheap = MethodCost(name="cheap", bytes_per_element=2, compression_seconds_per_byte=0.1 / MEBIBYTE)
    dear = MethodCost(name="dear", bytes_per_element=3.9, compression_seconds_per_byte=10 / MEBIBYTE)
    speeds = [MEBIBYTE * 2.0**exponent for exponent in range(-4, 12)]
    found = advise(step, _PLAIN, [cheap, dear], world_size=2, latency_seconds=0.0, caps=[None], speeds=speeds)
    cheap_advice, dear_advice = found
    assert cheap_advice.wins_below is not None
    assert speeds[0] <= cheap_advice.wins_below < speeds[-1]
    assert dear_advice.wins_below is None or dear_advice.wins_below < cheap_advice.wins_below


def test_micro_steps_before_the_last_delay_every_gradient() -> None:
    later = _step(4.0, 8.0).after(3)
    assert later.compute_seconds == 32.0
    assert [gradient.ready_seconds for gradient in later.gradients] == [28.0, 32.0]


_SIZES = [(700, 256), (256, 1), (1024, 256), (3000, 300), (64, 64), (9000, 800), (256, 1), (1024, 1024)]
_LIMITS: dict[float | None, list[int]] = {
    None: [MEBIBYTE, 25 * MEBIBYTE],
    **{cap_mb: [int(cap_mb * MEBIBYTE)] for cap_mb in (0.5, 1.0, 2.5, 5.0, 25.0)},
}
_BY_TORCH = """
import json, sys, torch, torch.distributed as dist
sizes, limits = json.loads(sys.argv[1])
tensors = [torch.empty(rows, columns) for rows, columns in sizes]
print(json.dumps([dist._compute_bucket_assignment_by_size(tensors, each)[0] for each in limits]))
"""


@pytest.fixture(scope="module")
def formed_by_torch() -> dict[float | None, list[list[int]]]:
    """The buckets of _SIZES that torch forms under each of _LIMITS."""
    asked = json.dumps([_SIZES, list(_LIMITS.values())])
    done = subprocess.run([sys.executable, "-c", _BY_TORCH, asked], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return dict(zip(_LIMITS, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("cap_mb", _LIMITS)
def test_buckets_are_those_that_torch_forms(
    cap_mb: float | None, formed_by_torch: dict[float | None, list[list[int]]]
) -> None:
    step = Step(
        compute_seconds=1.0,
        gradients=tuple(GradientTensor(rows=rows, columns=columns, ready_seconds=0) for rows, columns in _SIZES),
    )
    indices = {id(gradient): number for number, gradient in enumerate(step.gradients)}
    cap = None if cap_mb is None else int(cap_mb * MEBIBYTE)
    own = [[indices[id(gradient)] for gradient in bucket] for bucket in ddp_buckets(step, cap)]
    assert own == formed_by_torch[cap_mb]
