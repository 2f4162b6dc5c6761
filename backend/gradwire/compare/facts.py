"""Collects what was measured and how: the recipe's workload, the steps, the versions, the machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradwire.compare.format import memory
from gradwire.documents.comparison_schema import Comparison
from gradwire.documents.measurement_schema import Measurement, Workload

_CLOCK = "a step lasts as long as on its slowest rank; tokens are counted once per data-parallel rank"


def facts_of(comparison: Comparison, measurements: Sequence[Measurement]) -> list[tuple[str, str]]:
    """Return names and values for a reader; what differs between the runs is listed with " / "."""

    def each(value: Callable[[Measurement], str | None]) -> str:
        found = [text for measurement in measurements if (text := value(measurement))]
        return " / ".join(dict.fromkeys(found))

    facts = [
        ("Recipe", f"{comparison.recipe_name} (sha256 {comparison.recipe_sha256[:12]})"),
        ("Model", each(lambda run: run.workload.model)),
        ("Training", each(lambda run: _training(run.workload))),
        ("Batch", each(lambda run: _batch(run.workload))),
        ("Parallelism", each(lambda run: _parallelism(run.workload))),
        ("Steps", each(_steps)),
        ("Clock", each(lambda _: _CLOCK)),
        ("Device", each(lambda run: run.workload.device)),
        ("Machine", each(_machine)),
        ("Versions", each(_versions)),
        ("MFU", each(_utilization)),
        ("Measured", _period(measurements)),
    ]
    return [(name, value) for name, value in facts if value]


def _training(workload: Workload) -> str:
    words = [workload.precision, workload.optimizer]
    if workload.gradient_checkpointing:
        words.append("gradient checkpointing")
    if workload.compile:
        words.append("torch.compile")
    return ", ".join(words)


def _batch(workload: Workload) -> str:
    length = "" if workload.sequence_length is None else f" of {workload.sequence_length} tokens"
    accumulation = workload.gradient_accumulation
    times = f", {accumulation} times per step" if accumulation > 1 else ""
    return f"{workload.batch_size_per_gpu} sequences{length} per process{times}"


def _parallelism(workload: Workload) -> str:
    words = [workload.strategy]
    if workload.pipeline is not None:
        words.append(f"pipeline {workload.pipeline}")
    words.append(f"compression {workload.compression}")
    return "; ".join(words)


def _steps(run: Measurement) -> str:
    return f"{run.steps.trained} trained, the first {run.steps.warmup} left out as warm-up, {run.steps.timed} timed"


def _machine(run: Measurement) -> str:
    hardware = run.hardware
    return (
        f"{hardware.cpu}, {hardware.cpu_count} logical processors, {memory(hardware.memory_bytes)}, "
        f"{hardware.platform} (fingerprint {hardware.fingerprint})"
    )


def _versions(run: Measurement) -> str:
    return ", ".join(f"{package} {version}" for package, version in sorted(run.versions.items()) if version)


def _utilization(run: Measurement) -> str:
    found = run.utilization
    counted = "" if found.flops_formula is None else f"; FLOPs per token {found.flops_formula}"
    if found.mfu is None:
        return f"none: {found.reason}"
    kind = {"measured": "a measured peak", "given": "a given peak"}.get(
        found.peak_kind or "", "the data sheet's dense peak"
    )
    source = "" if found.peak_source is None else f" ({found.peak_source})"
    return f"of {kind} of {(found.peak_flops_per_second or 0) / 1e12:.4g} TFLOP/s per device{source}{counted}"


def _period(measurements: Sequence[Measurement]) -> str:
    starts = sorted(measurement.started_at for measurement in measurements)
    if not starts:
        return ""
    return starts[0] if starts[0] == starts[-1] else f"{starts[0]} to {starts[-1]}"
