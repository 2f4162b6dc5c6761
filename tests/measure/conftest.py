"""Plans and rank records to measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gradwire.documents.measurement_schema import Hardware, Measurement
from gradwire.documents.plan_schema import Plan
from gradwire.documents.recipe_schema import MeasurementOptions, Model, Parallelism, Pipeline, Recipe, Training
from gradwire.measure.hardware import with_fingerprint
from gradwire.measure.measurement import build_measurement
from gradwire.measure.totals import RankRecord
from gradwire.plan import Device, settle

PlanMaker = Callable[..., Plan]
TINY = Model(family="gpt2", hidden_size=8, layers=1, attention_heads=1, sequence_length=16)
RecordMaker = Callable[..., RankRecord]
Measure = Callable[..., Measurement]


@pytest.fixture(scope="session")
def plan() -> PlanMaker:
    def make(
        *,
        device: Device = "cpu",
        warmup_steps: int = 1,
        model: Model | None = TINY,
        pipeline: Pipeline | None = None,
        **training: Any,
    ) -> Plan:
        recipe = Recipe(
            model=model,
            training=Training(**{"num_gpus": 2, "batch_size_per_gpu": 4, **training}),
            parallelism=Parallelism(pipeline=pipeline),
            measurement=MeasurementOptions(warmup_steps=warmup_steps),
        )
        return settle(recipe, recipe_name="test", backend="native", device=device)

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
    def make(device_name: str) -> Hardware:
        return with_fingerprint(
            device_name=device_name, cpu="A Processor", cpu_count=2, memory_bytes=2**34, platform_name="Linux x86_64"
        )

    return make


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
