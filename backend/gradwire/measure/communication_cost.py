"""Predicts a step's time from latency, bandwidth and compression cost, and the link speeds at which compression pays.

The model: DDP fills buckets in the order in which gradients become ready; a bucket's parts are arithmetic, which one
thread does, and collectives, which one wire carries; parts of one bucket follow each other, and both thread and wire
serve the buckets first come, first served. The step ends with the compute or with the last bucket, whichever is later.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gradwire.recipe.torch_buckets import TORCH_BUCKET_MIB, TORCH_FIRST_BUCKET_MIB

MEBIBYTE = 2**20
_NEAR_ENOUGH = 1.01

_Resource = Literal["thread", "wire"]


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientTensor:
    """One parameter's gradient as a matrix (a vector has one column), ready `ready_seconds` after the step's start."""

    rows: int
    columns: int
    ready_seconds: float

    @property
    def elements(self) -> int:
        return self.rows * self.columns


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One optimizer step's compute on one rank, and its gradients in the order in which they become ready.

    With gradient accumulation, `compute_seconds` covers all micro-steps and gradients become ready in the last one.
    """

    compute_seconds: float
    gradients: tuple[GradientTensor, ...]
    bytes_per_element: int = 4

    @property
    def gradient_bytes(self) -> int:
        return sum(gradient.elements for gradient in self.gradients) * self.bytes_per_element

    def after(self, micro_steps: int) -> Step:
        """Return this step with `micro_steps` more before it, as long as it, that communicate nothing."""
        earlier = micro_steps * self.compute_seconds
        gradients = tuple(
            replace(gradient, ready_seconds=gradient.ready_seconds + earlier) for gradient in self.gradients
        )
        return replace(self, compute_seconds=self.compute_seconds + earlier, gradients=gradients)


@dataclass(frozen=True, kw_only=True, slots=True)
class Wire:
    """What joins the ranks: bytes per second of a link in each direction, and the seconds of an empty collective."""

    world_size: int
    bytes_per_second: float
    latency_seconds: float

    def all_reduce_seconds(self, payload_bytes: float) -> float:
        """Return the seconds of a bandwidth-optimal all-reduce: 2(n-1)/n of the payload over each link."""
        share = 2 * (self.world_size - 1) / self.world_size
        return self.latency_seconds + share * payload_bytes / self.bytes_per_second


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodCost:
    """What a method sends and computes.

    A bucket goes through `collectives` in turn. Without `matrix_approximation_rank` each element takes
    `bytes_per_element` on the wire; with it, matrices send `factors` (2: both, 1: one of them in turn) low-rank
    factors and the rest goes whole. `gathered` payloads are all-gathered: their cost grows with the world.
    `compression_seconds_per_byte` is arithmetic per byte of gradient, `compression_seconds_per_bucket` what each
    bucket adds to it; both measured, never derived from a peak rate.
    """

    name: str
    bytes_per_element: float
    collectives: int = 1
    matrix_approximation_rank: int | None = None
    factors: Literal[1, 2] = 2
    min_compression_rate: float = 2.0
    gathered: bool = False
    compression_seconds_per_byte: float = 0.0
    compression_seconds_per_bucket: float = 0.0

    def payload_bytes(self, bucket: Sequence[GradientTensor], world_size: int) -> float:
        """Return the size of the all-reduce that would send as much, averaged over steps."""
        total = sum(self._sent_elements(gradient) for gradient in bucket) * self.bytes_per_element
        return total * world_size / 2 if self.gathered else total

    def _sent_elements(self, gradient: GradientTensor) -> float:
        if self.matrix_approximation_rank is None:
            return gradient.elements
        rank = min(self.matrix_approximation_rank, gradient.rows, gradient.columns)
        factored = (gradient.rows + gradient.columns) * rank
        if factored * self.min_compression_rate >= gradient.elements:
            return gradient.elements
        return factored * self.factors / 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """Where a method pays: from `wins_below` bytes per second of link speed down, its step is the shorter one.

    None: it does not, at any speed that was tried.
    """

    method: str
    wins_below: float | None


def ddp_buckets(
    step: Step, bucket_cap_bytes: float | None, first_bucket_bytes: float | None = None
) -> list[list[GradientTensor]]:
    """Return the gradients by bucket, in order, as DDP fills them after the first step.

    A bucket is closed by the tensor that brings it to the cap (torch, compute_bucket_assignment_by_size). None: torch's
    own sizes; a given cap holds for the first bucket too, unless that has a size of its own.
    """
    cap = TORCH_BUCKET_MIB * MEBIBYTE if bucket_cap_bytes is None else bucket_cap_bytes
    limit = TORCH_FIRST_BUCKET_MIB * MEBIBYTE if bucket_cap_bytes is None else cap
    if first_bucket_bytes is not None:
        limit = min(first_bucket_bytes, cap)
    buckets: list[list[GradientTensor]] = [[]]
    size = 0
    for gradient in step.gradients:
        buckets[-1].append(gradient)
        size += gradient.elements * step.bytes_per_element
        if size >= limit:
            buckets.append([])
            size, limit = 0, cap
    return [bucket for bucket in buckets if bucket]


def step_seconds(
    step: Step,
    method: MethodCost,
    wire: Wire,
    *,
    bucket_cap_bytes: float | None,
    first_bucket_bytes: float | None = None,
) -> float:
    """Return the seconds of one optimizer step, compute and exposed communication."""
    buckets = ddp_buckets(step, bucket_cap_bytes, first_bucket_bytes)
    parts = [list(_parts(bucket, step, method, wire)) for bucket in buckets]
    ready = [(max(gradient.ready_seconds for gradient in bucket), number, 0) for number, bucket in enumerate(buckets)]
    heapq.heapify(ready)
    free: dict[_Resource, float] = {"thread": 0.0, "wire": 0.0}
    end = step.compute_seconds
    while ready:
        since, number, part = heapq.heappop(ready)
        resource, seconds = parts[number][part]
        free[resource] = ended = max(since, free[resource]) + seconds
        if part + 1 < len(parts[number]):
            heapq.heappush(ready, (ended, number, part + 1))
        end = max(end, ended)
    return end


def best_bucket_cap(
    step: Step,
    method: MethodCost,
    wire: Wire,
    *,
    caps: Sequence[float | None],
    first_bucket_bytes: float | None = None,
) -> tuple[float | None, float]:
    """Return a bucket size of `caps` and its step's seconds: the first that is within 1 % of the shortest step.

    Give the caps from small to large. A collective alternates between wire and arithmetic, which the model leaves out:
    more and smaller buckets overlap the two, so they are preferred where latency does not forbid it.
    """
    timed = [
        step_seconds(step, method, wire, bucket_cap_bytes=cap, first_bucket_bytes=first_bucket_bytes) for cap in caps
    ]
    good_enough = min(timed) * _NEAR_ENOUGH
    return next((cap, seconds) for cap, seconds in zip(caps, timed, strict=True) if seconds <= good_enough)


def advise(
    step: Step,
    plain: MethodCost,
    methods: Sequence[MethodCost],
    *,
    world_size: int,
    latency_seconds: float,
    caps: Sequence[float | None],
    speeds: Sequence[float],
    margin: float = 0.02,
) -> list[Advice]:
    """Return for each method the highest of `speeds` (bytes per second) from which down it beats `plain`.

    To win is to save more than `margin` of the step: less is within what a measurement can tell. Every method may use
    the best of the bucket sizes `caps`.
    """

    def seconds(method: MethodCost, speed: float) -> float:
        wire = Wire(world_size=world_size, bytes_per_second=speed, latency_seconds=latency_seconds)
        return best_bucket_cap(step, method, wire, caps=caps)[1]

    ascending = sorted(speeds)
    plain_seconds = [seconds(plain, speed) for speed in ascending]
    found = []
    for method in methods:
        wins_below = None
        for speed, without in zip(ascending, plain_seconds, strict=True):
            if seconds(method, speed) >= without * (1 - margin):
                break
            wins_below = speed
        found.append(Advice(method=method.name, wins_below=wins_below))
    return found


def _parts(
    bucket: Sequence[GradientTensor], step: Step, method: MethodCost, wire: Wire
) -> Iterator[tuple[_Resource, float]]:
    """Yield arithmetic and collectives in turn; both are spread evenly over the parts."""
    gradient_bytes = sum(gradient.elements for gradient in bucket) * step.bytes_per_element
    arithmetic = method.compression_seconds_per_bucket + gradient_bytes * method.compression_seconds_per_byte
    payload = method.payload_bytes(bucket, wire.world_size)
    for _ in range(method.collectives):
        yield "thread", arithmetic / (method.collectives + 1)
        yield "wire", wire.all_reduce_seconds(payload / method.collectives)
    yield "thread", arithmetic / (method.collectives + 1)
