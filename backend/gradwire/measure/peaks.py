"""Dense peak FLOP/s of known devices, by the data type of the matrix product; an unknown device has none."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class DevicePeak:
    """What one device, as torch counts devices, can do in FLOP/s without sparsity, and who says so.

    `fp32` is true single precision, torch's default for float32 products, and `tf32` what
    `torch.set_float32_matmul_precision("high")` makes of them. That, `bf16` and `fp16` are tensor (matrix) core rates
    with float32 accumulation. None: the device has no such unit. `source` is the vendor's own document, `printed` what
    it prints, in TFLOP/s, where that is not the entry itself.
    """

    names: tuple[str, ...]
    bf16: float | None
    fp16: float
    fp32: float
    tf32: float | None
    source: str
    printed: str | None = None


_A100 = (
    "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/"
    "nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
)
_HOPPER_PAPER = "https://resources.nvidia.com/en-us-tensor-core/gtc22-whitepaper-hopper"
_H100 = "https://www.nvidia.com/en-us/data-center/h100/"
_H200 = "https://www.nvidia.com/en-us/data-center/h200/"
_GH200 = "https://nvdam.widen.net/s/rrgqqnpbz8/grace-datasheet-gh200-grace-hopper-superchip-3773000"
_BLACKWELL = "https://nvdam.widen.net/s/wwnsxrhm2w/blackwell-datasheet-3384703"
_V100 = "https://images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf"
_ADA_PAPER = (
    "https://images.nvidia.com/aem-dam/Solutions/Data-Center/l4/nvidia-ada-gpu-architecture-whitepaper-v2.1.pdf"
)
_GA102_PAPER = "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.1.pdf"
_RTX_BLACKWELL_PAPER = (
    "https://images.nvidia.com/aem-dam/Solutions/geforce/blackwell/nvidia-rtx-blackwell-gpu-architecture.pdf"
)
_AMD = "https://www.amd.com/en/products/accelerators/instinct"
_MI300X = (
    "https://www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/data-sheets/amd-instinct-mi300x-data-sheet.pdf"
)

# Names are what torch.cuda.get_device_name returns, without the leading NVIDIA or AMD (see `_key`). One name,
# one device: "H100" alone is left out on purpose, for there are four of them and the peaks differ by a third.
DEVICE_PEAKS: tuple[DevicePeak, ...] = (
    DevicePeak(
        names=("GB200",),
        bf16=2500e12,
        fp16=2500e12,
        fp32=80e12,
        tf32=1250e12,
        source=_BLACKWELL,
        printed="GB200 NVL72, 72 GPUs: BF16 360,000 and TF32 180,000 with sparsity, FP32 5,760",
    ),
    DevicePeak(
        names=("B200",),
        bf16=2250e12,
        fp16=2250e12,
        fp32=75e12,
        tf32=1125e12,
        source=_BLACKWELL,
        printed="HGX B200, 8 GPUs: BF16 36,000 and TF32 18,000 with sparsity, FP32 600",
    ),
    DevicePeak(
        names=("GH200 480GB",),
        bf16=989.5e12,
        fp16=989.5e12,
        fp32=67e12,
        tf32=494e12,
        source=_GH200,
        printed="BF16 1,979 with sparsity, 990 without; TF32 989 and 494",
    ),
    DevicePeak(
        names=("H200",),
        bf16=989.5e12,
        fp16=989.5e12,
        fp32=67e12,
        tf32=494.5e12,
        source=_H200,
        printed="BF16 1,979 and TF32 989 with sparsity",
    ),
    DevicePeak(
        names=("H200 NVL",),
        bf16=835.5e12,
        fp16=835.5e12,
        fp32=60e12,
        tf32=417.5e12,
        source=_H200,
        printed="BF16 1,671 and TF32 835 with sparsity",
    ),
    DevicePeak(
        names=("H100 80GB HBM3",), bf16=989.4e12, fp16=989.4e12, fp32=66.9e12, tf32=494.7e12, source=_HOPPER_PAPER
    ),
    DevicePeak(names=("H100 PCIe",), bf16=756e12, fp16=756e12, fp32=51.2e12, tf32=378e12, source=_HOPPER_PAPER),
    DevicePeak(
        names=("H100 NVL",),
        bf16=835.5e12,
        fp16=835.5e12,
        fp32=60e12,
        tf32=417.5e12,
        source=_H100,
        printed="BF16 1,671 and TF32 835 with sparsity",
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
        tf32=156e12,
        source=_A100,
    ),
    DevicePeak(
        names=("A40",),
        bf16=149.7e12,
        fp16=149.7e12,
        fp32=37.4e12,
        tf32=74.8e12,
        source="https://images.nvidia.com/content/Solutions/data-center/a40/nvidia-a40-datasheet.pdf",
    ),
    DevicePeak(
        names=("A30",),
        bf16=165e12,
        fp16=165e12,
        fp32=10.3e12,
        tf32=82e12,
        source="https://www.nvidia.com/content/dam/en-zz/Solutions/data-center/products/a30-gpu/pdf/a30-datasheet.pdf",
    ),
    # Not the A10G, which is another chip configuration.
    DevicePeak(
        names=("A10",),
        bf16=125e12,
        fp16=125e12,
        fp32=31.2e12,
        tf32=62.5e12,
        source="https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a10/pdf/a10-datasheet.pdf",
    ),
    DevicePeak(
        names=("L40S",),
        bf16=362.05e12,
        fp16=362.05e12,
        fp32=91.6e12,
        tf32=183e12,
        source="https://www.nvidia.com/en-us/data-center/l40s/",
        printed="BF16 362.05 without sparsity, 733 with",
    ),
    DevicePeak(
        names=("L40",),
        bf16=181.05e12,
        fp16=181.05e12,
        fp32=90.5e12,
        tf32=90.5e12,
        source="https://www.nvidia.com/en-us/data-center/l40/",
        printed="BF16 181.05 without sparsity, 362.1 with",
    ),
    DevicePeak(
        names=("L4",),
        bf16=121e12,
        fp16=121e12,
        fp32=30.3e12,
        tf32=60e12,
        source="https://www.nvidia.com/en-us/data-center/l4/",
        printed="BF16 242 and TF32 120 with sparsity",
    ),
    DevicePeak(
        names=("Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB"),
        bf16=None,
        fp16=125e12,
        fp32=15.7e12,
        tf32=None,
        source=_V100,
    ),
    DevicePeak(
        names=("Tesla V100-PCIE-16GB", "Tesla V100-PCIE-32GB"),
        bf16=None,
        fp16=112e12,
        fp32=14e12,
        tf32=None,
        source=_V100,
    ),
    DevicePeak(names=("Tesla V100S-PCIE-32GB",), bf16=None, fp16=130e12, fp32=16.4e12, tf32=None, source=_V100),
    DevicePeak(
        names=("Tesla T4",),
        bf16=None,
        fp16=65e12,
        fp32=8.1e12,
        tf32=None,
        source="https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/tesla-t4/t4-tensor-core-datasheet-951643.pdf",
    ),
    # At its 2.41 GHz boost clock; cards that clock higher have measured matrix products above it.
    DevicePeak(
        names=("GeForce RTX 5090",),
        bf16=209.5e12,
        fp16=209.5e12,
        fp32=104.8e12,
        tf32=104.8e12,
        source=_RTX_BLACKWELL_PAPER,
    ),
    DevicePeak(
        names=("GeForce RTX 4090",), bf16=165.2e12, fp16=165.2e12, fp32=82.6e12, tf32=82.6e12, source=_ADA_PAPER
    ),
    DevicePeak(names=("GeForce RTX 3090",), bf16=71e12, fp16=71e12, fp32=35.6e12, tf32=35.6e12, source=_GA102_PAPER),
    DevicePeak(
        names=("Instinct MI300X",), bf16=1307.4e12, fp16=1307.4e12, fp32=163.4e12, tf32=653.7e12, source=_MI300X
    ),
    # The MI300X's compute dies, with more memory.
    DevicePeak(
        names=("Instinct MI325X",),
        bf16=1307.4e12,
        fp16=1307.4e12,
        fp32=163.4e12,
        tf32=653.7e12,
        source=f"{_AMD}/mi300/mi325x.html",
    ),
    # torch counts each of the two dies as a device; the page counts both.
    DevicePeak(
        names=("Instinct MI250X",),
        bf16=191.5e12,
        fp16=191.5e12,
        fp32=47.85e12,
        tf32=None,
        source=f"{_AMD}/mi200/mi250x.html",
        printed="two dies: BF16 383.0, FP32 matrix 95.7",
    ),
)


def device_peak(device_name: str) -> DevicePeak | None:
    """Return the entry of the device that torch calls `device_name`; None for a device that is not in the table.

    The whole name decides, never a part of it: "NVIDIA H100 PCIe" is not "NVIDIA H100 80GB HBM3", and a MIG slice
    or a custom variant ("NVIDIA A100-SXM-64GB") is neither.
    """
    return _BY_NAME.get(_key(device_name))


def peak_flops_per_second(device_name: str, precision: str) -> float | None:
    """Return the dense peak of one device in FLOP/s for products of a recipe's `training.precision`, or of a data type.

    None where the device is not in the table or has no unit for that data type.
    """
    peak = device_peak(device_name)
    if peak is None:
        return None
    match precision:
        case "fp32":
            return peak.fp32
        case "tf32":
            return peak.tf32
        case "bf16" | "bf16-mixed" | "bf16-true":
            return peak.bf16
        case "fp16" | "fp16-mixed":
            return peak.fp16
        case _:
            return None


def _key(device_name: str) -> str:
    words = device_name.casefold().replace("-", " ").replace("_", " ").split()
    if words and words[0] in ("nvidia", "amd"):
        words = words[1:]
    return " ".join(words)


_BY_NAME = {_key(name): peak for peak in DEVICE_PEAKS for name in peak.names}
