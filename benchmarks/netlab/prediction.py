"""Sets the cost model beside the lab's rows: fitted on some links, tried on the others."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

import msgspec

from benchmarks.netlab.configurations import ALONE, PLAIN, TABLE, Configuration
from benchmarks.netlab.emulated import FORWARD_SHARE, LAYERS, WIDTH, layer_shapes
from benchmarks.netlab.rows import Row
from gradwire.documents.recipe_schema import Compression
from gradwire.measure.communication_cost import (
    MEBIBYTE,
    GradientTensor,
    MethodCost,
    Step,
    Wire,
    step_seconds,
)
from gradwire.measure.method_costs import method_cost as own_cost

# Beyond this, compressing 30 MB would take three seconds.
_DEAREST_SECONDS_PER_BYTE = 1e-7
_SEARCH_STEPS = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """One configuration on one link; `fitted` where its rows served to find the method's compression cost."""

    configuration: str
    wire: Wire
    rate_mbit: float | None
    measured_seconds: float
    predicted_seconds: float
    fitted: bool

    @property
    def error(self) -> float:
        return self.predicted_seconds / self.measured_seconds - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class _Case:
    configuration: Configuration
    rate_mbit: float | None
    wire: Wire
    step: Step
    seconds: float


def emulated_step(compute_seconds: float) -> Step:
    """Return the lab's emulated model as the cost model sees it: the last layer's gradients come first, together."""
    backward = compute_seconds * (1 - FORWARD_SHARE)
    gradients = tuple(
        GradientTensor(
            rows=shape[0],
            columns=math.prod(shape[1:]),
            ready_seconds=compute_seconds - backward + backward * (layer + 1) / LAYERS,
        )
        for layer in range(LAYERS)
        for shape in reversed(layer_shapes(WIDTH))
    )
    return Step(compute_seconds=compute_seconds, gradients=gradients)


def method_cost(configuration: Configuration) -> MethodCost:
    """Return what the configuration sends; its compression cost is zero until it is fitted."""
    match configuration.kind:
        case "alone" | "ddp":
            return own_cost(Compression(), name=configuration.name)
        case "torch-fp16":
            return own_cost(Compression(method="fp16-torch"), name=configuration.name)
        case "torch-powersgd" | "gradwire":
            method = {"method": "powersgd-torch"} if configuration.kind == "torch-powersgd" else {}
            return own_cost(
                msgspec.convert({**method, **configuration.compression}, Compression), name=configuration.name
            )
        case unknown:
            assert_never(unknown)


def wire_of(all_reduce_bytes_per_second: float, latency_seconds: float, world_size: int) -> Wire:
    """Return the link behind an all-reduce of that speed in gradient bytes per second."""
    share = 2 * (world_size - 1) / world_size
    return Wire(
        world_size=world_size,
        bytes_per_second=all_reduce_bytes_per_second * share,
        latency_seconds=latency_seconds,
    )


def fit(rows: Sequence[Row], *, fitted_rates: Sequence[float | None]) -> tuple[list[Prediction], list[MethodCost]]:
    """Return a prediction for every configuration and link, and the methods with their fitted compression cost.

    The one number that is fitted is a method's arithmetic per byte of gradient, by the least squared relative error
    over its rows at `fitted_rates`; latency and bandwidth are the ones calibrated in the run. Every method's cost is
    fitted by itself and serves for all numbers of hosts.
    """
    cases = _cases(rows)
    predictions: list[Prediction] = []
    methods: list[MethodCost] = []
    for name in dict.fromkeys(case.configuration.name for case in cases):
        own = [case for case in cases if case.configuration.name == name]
        sample = [case for case in own if case.rate_mbit in fitted_rates]
        cost = _fitted(method_cost(own[0].configuration), sample)
        methods.append(cost)
        predictions.extend(
            Prediction(
                configuration=name,
                wire=case.wire,
                rate_mbit=case.rate_mbit,
                measured_seconds=case.seconds,
                predicted_seconds=_predicted(case, cost),
                fitted=case in sample,
            )
            for case in own
        )
    return predictions, methods


def _cases(rows: Sequence[Row]) -> list[_Case]:
    """Return the emulated rows by link and configuration, with the median step of its rounds."""
    groups: dict[tuple[int, float | None], list[Row]] = {}
    for row in rows:
        if row.mode == "emulated":
            groups.setdefault((row.link.hosts, row.link.rate_mbit), []).append(row)
    known = {configuration.name: configuration for configuration in TABLE}
    cases: list[_Case] = []
    for (hosts, rate_mbit), group in groups.items():
        link = group[0].link
        wire = wire_of(link.bytes_per_second, link.latency_seconds, hosts)
        step = emulated_step(_median_seconds(group, ALONE))
        cases.extend(
            _Case(
                configuration=_as_measured(known[name], group),
                rate_mbit=rate_mbit,
                wire=wire,
                step=step,
                seconds=_median_seconds(group, name),
            )
            for name in dict.fromkeys(row.sample.configuration for row in group)
            if name != ALONE and name in known
        )
    return cases


def _as_measured(configuration: Configuration, group: Sequence[Row]) -> Configuration:
    """Return `configuration` with the bucket size that its rows had, where the workers chose it."""
    if not configuration.auto_bucket:
        return configuration
    caps = {row.sample.bucket_cap_mb for row in group if row.sample.configuration == configuration.name}
    return replace(configuration, bucket_cap_mb=caps.pop())


def _median_seconds(group: Sequence[Row], name: str) -> float:
    return statistics.median(
        statistics.median(row.sample.step_seconds) for row in group if row.sample.configuration == name
    )


def _predicted(case: _Case, cost: MethodCost) -> float:
    cap_mb = case.configuration.bucket_cap_mb
    cap = None if cap_mb is None else cap_mb * MEBIBYTE
    return step_seconds(case.step, cost, case.wire, bucket_cap_bytes=cap)


def _fitted(cost: MethodCost, sample: Sequence[_Case]) -> MethodCost:
    """Return `cost` with the best arithmetic per byte; a longer one never shortens a step, so thirds suffice."""
    if not sample or cost.name == PLAIN:
        return cost
    low, high = 0.0, _DEAREST_SECONDS_PER_BYTE

    def loss(seconds_per_byte: float) -> float:
        tried = replace(cost, compression_seconds_per_byte=seconds_per_byte)
        return sum((_predicted(case, tried) / case.seconds - 1) ** 2 for case in sample)

    for _ in range(_SEARCH_STEPS):
        third = (high - low) / 3
        if loss(low + third) <= loss(high - third):
            high -= third
        else:
            low += third
    return replace(cost, compression_seconds_per_byte=low)
