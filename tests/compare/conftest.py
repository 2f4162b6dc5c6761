"""Runs with their measurements, made without running anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from gradwire.compare.build import build_comparison
from gradwire.documents.comparison_schema import Comparison, Run
from gradwire.documents.measurement_schema import Measurement, TimeSplit
from gradwire.documents.plan_schema import Plan
from gradwire.measure.measurement import build_measurement
from gradwire.measure.totals import RankRecord
from gradwire.plan import Backend
from tests.tiny_plans import machine_of, tiny_plan


@pytest.fixture(scope="session")
def plan() -> Callable[..., Plan]:
    """Plans for one process, unless another number is given."""

    def make(**given: Any) -> Plan:
        return tiny_plan(**{"num_gpus": 1, **given})

    return make


@pytest.fixture(scope="session")
def ran(plan: Callable[..., Plan]) -> Callable[..., tuple[Run, Measurement]]:
    """A run that ended well: `seconds` per step, so its throughput is the global batch over them."""

    def make(
        backend: Backend = "native",
        num_gpus: int = 1,
        *,
        seconds: float = 1.0,
        repeat: int = 0,
        losses: Sequence[float] = (3.0, 2.5, 2.0),
        cpu_count: int = 64,
        device_name: str = "A Processor",
        process_bytes: int = 2**29,
        device_bytes: int | None = None,
        versions: dict[str, str | None] | None = None,
        notes: Sequence[str] = (),
        time_split: TimeSplit | None = None,
        **given: Any,
    ) -> tuple[Run, Measurement]:
        settled = plan(backend=backend, num_gpus=num_gpus, **given)
        steps = len(losses)
        samples = settled.batch.batch_size_per_gpu * settled.batch.gradient_accumulation
        reading = settled.batch.data_parallel_size
        ranks = [
            RankRecord(
                step_seconds=[seconds] * steps,
                samples=[samples if rank < reading else 0] * steps,
                tokens=[samples * 16 if rank < reading else 0] * steps,
                peak_device_allocated_bytes=device_bytes,
                peak_device_reserved_bytes=device_bytes,
                peak_process_bytes=process_bytes,
            )
            for rank in range(num_gpus)
        ]
        measurement = build_measurement(
            settled,
            ranks,
            losses=losses,
            gradient_norms=[None] * steps,
            started_at=f"2026-05-01T12:0{repeat}:00+00:00",
            versions=versions or {"torch": "2.13.0"},
            hardware=machine_of(device_name, cpu_count=cpu_count),
            notes=notes,
            time_split=time_split,
        )
        run = Run(
            backend=backend,
            num_gpus=num_gpus,
            repeat=repeat,
            status="ok",
            reason=None,
            folder=f"runs/{backend}-{num_gpus}-{repeat}",
            samples_per_second=None,
            tokens_per_second=None,
            is_outlier=False,
        )
        return run, measurement

    return make


@pytest.fixture(scope="session")
def failed(ran: Callable[..., tuple[Run, Measurement]]) -> Callable[..., tuple[Run, None]]:
    def make(backend: Backend = "native", num_gpus: int = 1, *, reason: str, repeat: int = 0) -> tuple[Run, None]:
        run, _ = ran(backend, num_gpus, repeat=repeat)
        return replace(run, status="failed", reason=reason), None

    return make


@pytest.fixture(scope="session")
def compared() -> Callable[..., Comparison]:
    """The comparison of runs; its recipe is that of the first measured one unless another hash is given."""

    def make(*runs: tuple[Run, Measurement | None], scaling: Any = "weak", sha256: str | None = None) -> Comparison:
        hashes = [measurement.recipe_sha256 for _, measurement in runs if measurement is not None]
        return build_comparison("cpu/test", sha256 or (hashes[0] if hashes else "0" * 64), scaling, runs)

    return make


@pytest.fixture(scope="session")
def example(
    ran: Callable[..., tuple[Run, Measurement]],
    failed: Callable[..., tuple[Run, None]],
    compared: Callable[..., Comparison],
) -> tuple[Comparison, list[Measurement]]:
    """Three backends at three sizes, one repeat; the last cell failed, four processes crowd two cores."""
    runs: list[tuple[Run, Measurement | None]] = [
        ran(backend, size, seconds=base * (1 + slope * (size - 1)), cpu_count=2)
        for backend, base, slope in (("native", 0.1, 0.1), ("accelerate", 0.11, 0.2), ("deepspeed", 0.16, 0.5))
        for size in (1, 2, 4)
        if (backend, size) != ("deepspeed", 4)
    ]
    runs.append(failed("deepspeed", 4, reason="rank 3 was killed by signal 9; see runs/deepspeed-4-0/rank3.log"))
    return compared(*runs), [measurement for _, measurement in runs if measurement is not None]


@pytest.fixture(scope="session")
def repeated(ran: Callable[..., tuple[Run, Measurement]], compared: Callable[..., Comparison]) -> Comparison:
    """One backend at three sizes, three interleaved repeats, with time splits; it scales poorly on four."""
    runs = [
        ran(num_gpus=size, seconds=seconds * pace, repeat=repeat, batch_size_per_gpu=8, time_split=_split(seconds))
        for repeat, pace in enumerate((1.0, 1.04, 1.02))
        for size, seconds in ((1, 0.5), (2, 0.6 - 0.01 * repeat), (4, 1.0))
    ]
    return compared(*runs)


@pytest.fixture(scope="session")
def many(
    ran: Callable[..., tuple[Run, Measurement]],
    failed: Callable[..., tuple[Run, None]],
    compared: Callable[..., Comparison],
) -> Comparison:
    """Four backends at seven sizes with time splits; the last cell failed, and the recipe has a long name."""
    runs: list[tuple[Run, Measurement | None]] = [
        ran(backend, 2**power, seconds=base * (1 + 0.05 * power), time_split=_split(base * (1 + 0.05 * power)))
        for backend, base in (("native", 0.6), ("accelerate", 0.65), ("deepspeed", 0.7), ("trainer", 0.75))
        for power in range(7)
        if (backend, power) != ("trainer", 6)
    ]
    runs.append(failed("trainer", 64, reason=f"see {'a-long-folder-name-' * 8}/rank3.log"))
    return replace(compared(*runs), recipe_name="somebody/a-model-of-1.3B-" + "with-a-long-name-" * 5)


def _split(step: float) -> TimeSplit:
    communication = step - 0.5
    return TimeSplit(
        input_wait=0.0,
        compute=step - communication - 0.05,
        exposed_communication=communication,
        pipeline_bubble=0.0,
        optimizer=0.05,
        straggler_wait=0.0,
        other=0.0,
    )
