"""Reads what a measurement must name: the versions that took part, and the memory that the process took."""

from __future__ import annotations

import importlib.metadata
import platform
import resource
from typing import Any

import torch

from gradwire.measure.meter import ThroughputMeter
from gradwire.measure.totals import RankRecord

_PACKAGES = ("gradwire", "torch", "transformers", "accelerate", "deepspeed")


def read_versions() -> dict[str, str | None]:
    """Return the version of Python and of each package that takes part; None where it is not installed."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return versions


def device_name(device: Any) -> str | None:
    """Return the accelerator's name, None on cpu."""
    return str(torch.cuda.get_device_name(device)) if device.type == "cuda" else None


def device_uuid(device: Any) -> str | None:
    """Return the accelerator's identity, for NVML; None on cpu."""
    return str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else None


def record_with_memory(meter: ThroughputMeter, device: Any) -> RankRecord:
    """Return the meter's record with the peak memory of this process, in bytes."""
    on_device = device.type == "cuda"
    return meter.record(
        # Linux counts in KiB.
        peak_process_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        peak_device_allocated_bytes=torch.cuda.max_memory_allocated(device) if on_device else None,
        peak_device_reserved_bytes=torch.cuda.max_memory_reserved(device) if on_device else None,
    )
