"""A measured peak in the place of a data sheet's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradwire.documents.peak_schema import MatmulPeak, MatmulRate
from gradwire.errors import UsageError
from gradwire.measure.document import document_text
from gradwire.measure.matmul_peak import RunPeak, read_matmul_peak
from gradwire.measure.utilization import hardware_flops_per_token, utilization_of

Make = Callable[..., Any]


def peak(device: Any = "cpu", name: str = "A Processor", **rates: float) -> MatmulPeak:
    threads = 1 if device == "cpu" else None
    found: Any = [
        MatmulRate(dtype=dtype, threads=threads, size=512, flops_per_second=rate)  # type: ignore[arg-type]
        for dtype, rate in rates.items()
    ]
    return MatmulPeak(
        format_version=1, device=device, device_name=name, torch="2.13.0", measured_at="2026-05-01", rates=found
    )


def test_a_measured_peak_stands_in_where_none_is_known_and_says_so(plan: Make) -> None:
    settled = plan()
    measured = RunPeak(peak=peak(fp32=1e9, bf16=2e9), threads=1)
    utilization = utilization_of(settled, "A Processor", 100.0, measured_peak=measured)
    assert utilization.mfu == settled.model_size.flops_per_token * 100.0 / 1e9
    assert (utilization.peak_kind, utilization.peak_flops_per_second) == ("measured", 1e9)
    assert utilization.peak_source == (
        "measured: fp32 product of 512 x 512 matrices, 1 thread, torch 2.13.0, 2026-05-01"
    )
    assert utilization.reason is None


def test_recomputation_counts_against_a_measured_peak_too(plan: Make) -> None:
    settled = plan(gradient_checkpointing=True)
    utilization = utilization_of(settled, "A Processor", 100.0, measured_peak=RunPeak(peak=peak(fp32=1e9), threads=1))
    assert utilization.hfu == hardware_flops_per_token(settled) * 100.0 / 1e9
    assert utilization.mfu is not None and utilization.mfu < utilization.hfu


def test_the_rate_is_that_of_the_runs_data_type_and_an_unlisted_gpu(plan: Make) -> None:
    measured = RunPeak(peak=peak("cuda", "NVIDIA Future", fp32=1e9, bf16=4e9, fp16=5e9), threads=None)
    peaks = {
        precision: utilization_of(
            plan(device="cuda", precision=precision), "NVIDIA Future", 1.0, measured_peak=measured
        ).peak_flops_per_second
        for precision in ("fp32", "bf16-mixed", "bf16-true", "fp16-mixed")
    }
    assert peaks == {"fp32": 1e9, "bf16-mixed": 4e9, "bf16-true": 4e9, "fp16-mixed": 5e9}


def test_the_vendors_peak_wins_where_there_is_one(plan: Make) -> None:
    measured = RunPeak(peak=peak("cuda", "NVIDIA H200", fp32=1e9, bf16=1e9, fp16=1e9), threads=None)
    utilization = utilization_of(plan(device="cuda", precision="bf16-true"), "NVIDIA H200", 1.0, measured_peak=measured)
    assert (utilization.peak_kind, utilization.peak_flops_per_second) == ("data-sheet", 989.5e12)
    assert utilization.peak_source == "https://www.nvidia.com/en-us/data-center/h200/"


def test_more_than_the_measured_peak_is_reported_as_wrong_inputs(plan: Make) -> None:
    utilization = utilization_of(plan(), "A Processor", 1e9, measured_peak=RunPeak(peak=peak(fp32=1.0), threads=1))
    assert (utilization.mfu, utilization.hfu) == (None, None)
    assert utilization.reason is not None
    assert utilization.reason.startswith("the inputs are wrong")
    assert "that the peak was measured while nothing else ran" in utilization.reason


@pytest.mark.parametrize(
    ("measured", "precision", "reason"),
    [
        (RunPeak(peak=peak(name="Another", fp32=1e9), threads=1), "fp32", "is of 'Another', another device"),
        (RunPeak(peak=peak("cuda", "A Processor", fp32=1e9), threads=1), "fp32", "another device"),
        (RunPeak(peak=peak(fp32=1e9), threads=1), "bf16-mixed", "has no rate for bf16"),
        (RunPeak(peak=peak(fp32=1e9), threads=4), "fp32", "is of 1 threads, and a process of this run has 4"),
        (None, "fp32", "`gradwire doctor --peak` measures one"),
    ],
)
def test_a_peak_that_does_not_fit_is_not_used_and_the_reason_says_why(
    plan: Make, measured: RunPeak | None, precision: str, reason: str
) -> None:
    utilization = utilization_of(plan(precision=precision), "A Processor", 1.0, measured_peak=measured)
    assert (utilization.mfu, utilization.peak_flops_per_second, utilization.peak_kind) == (None, None, None)
    assert utilization.reason is not None
    assert reason in utilization.reason


def test_the_file_is_read_back_and_another_document_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "peak.json"
    file.write_text(document_text(peak(fp32=1e9), "peak"))
    assert read_matmul_peak(file) == peak(fp32=1e9)
    file.write_text('{"device": "tpu"}')
    with pytest.raises(UsageError, match="'tpu' is not one of"):
        read_matmul_peak(file)
