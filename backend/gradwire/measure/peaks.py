"""Dense peak FLOP/s of known devices, by the data type of the matrix product; an unknown device has none."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class DevicePeak:
    """What one device, as torch counts devices, can do in FLOP/s without sparsity, and who says so.

    `fp32` is true single precision, torch's default for float32 products, not TF32. `bf16` and `fp16` are
    tensor (matrix) core rates with float32 accumulation. None: the device has no such unit.
    """

    names: tuple[str, ...]
    bf16: float | None
    fp16: float
    fp32: float
    source: str


_A100 = "NVIDIA A100 data sheet: FP32 19.5, BF16/FP16 312 dense (624 sparse)"
_H100_PAPER = "NVIDIA H100 Tensor Core GPU Architecture white paper: dense; FP32 without tensor cores"
_H200 = "NVIDIA H200 data sheet: BF16/FP16 with sparsity (SXM 1,979, NVL 1,671) halved; FP32 without tensor cores"
_V100 = "NVIDIA V100 and V100S data sheets (2020); no BF16"
_ADA_PAPER = "NVIDIA Ada GPU Architecture white paper: FP16/BF16 with FP32 accumulate, dense"
_AMPERE_PAPER = "NVIDIA Ampere GA102 GPU Architecture white paper: FP16/BF16 with FP32 accumulate, dense"

# Names are what torch.cuda.get_device_name returns, without the leading NVIDIA or AMD (see `_key`). One name,
# one device: "H100" alone is left out on purpose, for there are four of them and the peaks differ by a third.
DEVICE_PEAKS: tuple[DevicePeak, ...] = (
    DevicePeak(
        names=("GB200",),
        bf16=2500e12,
        fp16=2500e12,
        fp32=80e12,
        source="NVIDIA Blackwell data sheet, GB200 NVL72, per GPU: BF16 with sparsity (5 PFLOPS) halved",
    ),
    DevicePeak(
        names=("B200",),
        bf16=2250e12,
        fp16=2250e12,
        fp32=75e12,
        source="NVIDIA Blackwell data sheet, HGX B200, per GPU: BF16 with sparsity (4.5 PFLOPS) halved",
    ),
    DevicePeak(names=("H200",), bf16=989.5e12, fp16=989.5e12, fp32=67e12, source=_H200),
    DevicePeak(names=("H200 NVL",), bf16=835.5e12, fp16=835.5e12, fp32=60e12, source=_H200),
    DevicePeak(names=("H100 80GB HBM3",), bf16=989.4e12, fp16=989.4e12, fp32=66.9e12, source=_H100_PAPER),
    DevicePeak(names=("H100 PCIe",), bf16=756e12, fp16=756e12, fp32=51.2e12, source=_H100_PAPER),
    DevicePeak(
        names=("H100 NVL",),
        bf16=835.5e12,
        fp16=835.5e12,
        fp32=60e12,
        source="NVIDIA H100 data sheet, H100 NVL: BF16/FP16 with sparsity (1,671) halved",
    ),
    DevicePeak(
        names=(
            "A100-SXM4-40GB",
            "A100-SXM4-80GB",
            "A100-PCIE-40GB",
            "A100-PCIE-80GB",
            "A100 80GB PCIe",
        ),
        bf16=312e12,
        fp16=312e12,
        fp32=19.5e12,
        source=_A100,
    ),
    DevicePeak(
        names=("A40",),
        bf16=149.7e12,
        fp16=149.7e12,
        fp32=37.4e12,
        source="NVIDIA A40 data sheet: 149.7 dense, 299.4 sparse",
    ),
    DevicePeak(
        names=("A30",), bf16=165e12, fp16=165e12, fp32=10.3e12, source="NVIDIA A30 data sheet: 165 dense, 330 sparse"
    ),
    # Not the A10G, which is another chip configuration.
    DevicePeak(
        names=("A10",), bf16=125e12, fp16=125e12, fp32=31.2e12, source="NVIDIA A10 data sheet: 125 dense, 250 sparse"
    ),
    DevicePeak(
        names=("L40S",),
        bf16=362.05e12,
        fp16=362.05e12,
        fp32=91.6e12,
        source="NVIDIA L40S data sheet: 362.05 dense, 733 sparse",
    ),
    DevicePeak(
        names=("L40",),
        bf16=181.05e12,
        fp16=181.05e12,
        fp32=90.5e12,
        source="NVIDIA L40 data sheet: 181.05 dense, 362.1 sparse",
    ),
    DevicePeak(
        names=("L4",),
        bf16=121e12,
        fp16=121e12,
        fp32=30.3e12,
        source="NVIDIA L4 data sheet: BF16 with sparsity (242) halved",
    ),
    DevicePeak(
        names=("Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB"), bf16=None, fp16=125e12, fp32=15.7e12, source=_V100
    ),
    DevicePeak(
        names=("Tesla V100-PCIE-16GB", "Tesla V100-PCIE-32GB"), bf16=None, fp16=112e12, fp32=14e12, source=_V100
    ),
    DevicePeak(names=("Tesla V100S-PCIE-32GB",), bf16=None, fp16=130e12, fp32=16.4e12, source=_V100),
    DevicePeak(names=("Tesla T4",), bf16=None, fp16=65e12, fp32=8.1e12, source="NVIDIA T4 data sheet; no BF16"),
    DevicePeak(
        names=("GeForce RTX 5090",),
        bf16=209.5e12,
        fp16=209.5e12,
        fp32=104.8e12,
        source="NVIDIA RTX Blackwell GPU Architecture white paper: FP16/BF16 with FP32 accumulate, dense",
    ),
    DevicePeak(names=("GeForce RTX 4090",), bf16=165.2e12, fp16=165.2e12, fp32=82.6e12, source=_ADA_PAPER),
    DevicePeak(names=("GeForce RTX 3090",), bf16=71e12, fp16=71e12, fp32=35.6e12, source=_AMPERE_PAPER),
    DevicePeak(
        names=("Instinct MI300X",),
        bf16=1307.4e12,
        fp16=1307.4e12,
        fp32=163.4e12,
        source="AMD Instinct MI300X data sheet (2023): peak FP16/BF16 matrix and FP32 matrix, dense",
    ),
    # torch counts each of the two dies as a device; the data sheet counts both.
    DevicePeak(
        names=("Instinct MI250X",),
        bf16=191.5e12,
        fp16=191.5e12,
        fp32=47.85e12,
        source="AMD Instinct MI250X data sheet (2021): FP16/BF16 383.0 and FP32 matrix 95.7 for two dies, halved",
    ),
)


def device_peak(device_name: str) -> DevicePeak | None:
    """Return the entry of the device that torch calls `device_name`; None for a device that is not in the table.

    The whole name decides, never a part of it: "NVIDIA H100 PCIe" is not "NVIDIA H100 80GB HBM3", and a MIG slice
    or a custom variant ("NVIDIA A100-SXM-64GB") is neither.
    """
    return _BY_NAME.get(_key(device_name))


def peak_flops_per_second(device_name: str, precision: str) -> float | None:
    """Return the dense peak of one device in FLOP/s for matrix products of a recipe's `training.precision`.

    None where the device is not in the table or has no unit for that data type.
    """
    peak = device_peak(device_name)
    if peak is None:
        return None
    match precision:
        case "fp32":
            return peak.fp32
        case "bf16-mixed" | "bf16-true":
            return peak.bf16
        case "fp16-mixed":
            return peak.fp16
        case _:
            return None


def _key(device_name: str) -> str:
    words = device_name.casefold().replace("-", " ").replace("_", " ").split()
    if words and words[0] in ("nvidia", "amd"):
        words = words[1:]
    return " ".join(words)


_BY_NAME = {_key(name): peak for peak in DEVICE_PEAKS for name in peak.names}
