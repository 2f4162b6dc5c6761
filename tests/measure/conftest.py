"""Plans and rank records to measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from gradwire.documents.measurement_schema import Hardware, Measurement
from gradwire.documents.plan_schema import Plan
from gradwire.measure.measurement import build_measurement
from gradwire.measure.totals import RankRecord
from tests.tiny_plans import machine_of, tiny_plan

PlanMaker = Callable[..., Plan]
RecordMaker = Callable[..., RankRecord]
Measure = Callable[..., Measurement]


@pytest.fixture(scope="session")
def plan() -> PlanMaker:
    """Plans for two processes, unless another number is given."""

    def make(**given: Any) -> Plan:
        return tiny_plan(**{"num_gpus": 2, **given})

    return make


@pytest.fixture(scope="session")
def record() -> RecordMaker:
    def make(step_seconds: Sequence[float], *, samples: int = 4, tokens: int = 64, **peaks: int | None) -> RankRecord:
        return RankRecord(
            step_seconds=list(step_seconds),
            samples=[samples] * len(step_seconds),
            tokens=[tokens] * len(step_seconds),
            peak_device_allocated_bytes=peaks.get("allocated"),
            peak_device_reserved_bytes=peaks.get("reserved"),
            peak_process_bytes=peaks.get("process") or 1000,
        )

    return make


@pytest.fixture(scope="session")
def machine() -> Callable[[str], Hardware]:
    return partial(machine_of, cpu_count=2)


@pytest.fixture(scope="session")
def measure(machine: Callable[[str], Hardware]) -> Measure:
    def make(plan: Plan, ranks: Sequence[RankRecord], *, device_name: str = "A Processor", **given: Any) -> Measurement:
        steps = len(ranks[0].step_seconds)
        return build_measurement(
            plan,
            ranks,
            losses=given.get("losses", [1.0] * steps),
            gradient_norms=given.get("gradient_norms", [None] * steps),
            started_at="2026-05-01T12:00:00+00:00",
            versions={"torch": "2.13.0", "deepspeed": None},
            hardware=machine(device_name),
            notes=given.get("notes", []),
            traffic=given.get("traffic", ()),
            micro_steps=given.get("micro_steps", ()),
        )

    return make
