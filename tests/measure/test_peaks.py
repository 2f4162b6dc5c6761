"""The table of peaks, and which name means which device."""

from __future__ import annotations

import re

import pytest

from gradwire.measure.peaks import DEVICE_PEAKS, device_peak, peak_flops_per_second


@pytest.mark.parametrize(
    ("name", "precision", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16-mixed", 989.4e12),
        ("NVIDIA H100 80GB HBM3", "fp32", 66.9e12),
        ("NVIDIA H100 80GB HBM3", "tf32", 494.7e12),
        ("NVIDIA A100-SXM4-80GB", "tf32", 156e12),
        ("NVIDIA H100 PCIe", "bf16-true", 756e12),
        ("NVIDIA H100 NVL", "fp16-mixed", 835.5e12),
        ("NVIDIA H200", "bf16-true", 989.5e12),
        ("NVIDIA A100-SXM4-80GB", "bf16-mixed", 312e12),
        ("A100-SXM4-40GB", "fp32", 19.5e12),
        ("NVIDIA A100 80GB PCIe", "fp16-mixed", 312e12),
        ("NVIDIA GeForce RTX 4090", "bf16-mixed", 165.2e12),
        ("Tesla V100-SXM2-32GB", "fp16-mixed", 125e12),
        ("Tesla T4", "fp16-mixed", 65e12),
        ("AMD Instinct MI300X", "bf16-true", 1307.4e12),
        ("AMD Instinct MI250X", "bf16-true", 191.5e12),
    ],
)
def test_a_known_device_has_its_own_dense_peak(name: str, precision: str, peak: float) -> None:
    assert peak_flops_per_second(name, precision) == peak


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA H100",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA A100-SXM-64GB",
        "NVIDIA A10G",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "Graphics Device",
        "Intel(R) Xeon(R) Processor",
        "NVIDIA",
        "",
    ],
)
def test_a_name_that_only_resembles_a_known_one_has_no_peak(name: str) -> None:
    assert peak_flops_per_second(name, "bf16-mixed") is None


@pytest.mark.parametrize("name", ["Tesla V100-SXM2-16GB", "Tesla T4"])
def test_a_device_without_a_bf16_unit_has_no_bf16_peak(name: str) -> None:
    assert peak_flops_per_second(name, "bf16-mixed") is None
    assert peak_flops_per_second(name, "fp32") is not None


def test_an_unknown_precision_has_no_peak() -> None:
    assert peak_flops_per_second("NVIDIA H200", "fp8") is None


def test_every_entry_says_where_it_comes_from_and_is_found_by_each_name() -> None:
    assert DEVICE_PEAKS
    for peak in DEVICE_PEAKS:
        assert re.match(r"https://[\w.]*(nvidia\.com|amd\.com|nvdam\.widen\.net)/", peak.source), peak.names
        assert all(device_peak(name) is peak for name in peak.names)


@pytest.mark.parametrize("dtype", ["bf16", "tf32"])
def test_where_a_source_prints_the_rate_with_sparsity_the_entry_is_half_of_it(dtype: str) -> None:
    halved = [
        peak
        for peak in DEVICE_PEAKS
        if peak.printed and "with sparsity" in peak.printed and "without" not in peak.printed
    ]
    assert len(halved) >= 6
    for peak in halved:
        gpus = re.search(r"(\d+) GPUs: ", str(peak.printed))
        printed = re.search(rf"{dtype.upper()} ([\d,]+)", str(peak.printed))
        assert printed is not None
        each = float(printed[1].replace(",", "")) / int(gpus[1] if gpus else 1)
        assert getattr(peak, dtype) == pytest.approx(each / 2 * 1e12)


def test_no_entry_has_a_peak_with_sparsity() -> None:
    # A sparse rate is twice the dense one; the tensor cores of these devices do 3 to 33 times their fp32 rate.
    for peak in DEVICE_PEAKS:
        assert peak.bf16 in (None, peak.fp16)
        assert 1.9 < peak.fp16 / peak.fp32 < 34
        # A product in TF32 takes twice as long as one in fp16; data sheets round.
        assert peak.tf32 is None or peak.tf32 == pytest.approx(peak.fp16 / 2, rel=0.02)
