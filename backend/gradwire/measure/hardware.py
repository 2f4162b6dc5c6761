"""Describes this machine without torch: what a reader of a measurement must know, nothing that names the machine."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

import msgspec

from gradwire.documents.measurement_schema import Device, Hardware

_CPUINFO = Path("/proc/cpuinfo")
_CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def hardware(device_name: str | None = None, *, device: Device | None = None) -> Hardware:
    """Return the facts of this machine; `device_name` and `device` are the accelerator's, None where there is none.

    No host name and no address goes in. The processors counted are those this process may use: its affinity, and
    a container's quota where that is less.
    """
    cpu = cpu_name()
    return with_fingerprint(
        device_name=device_name or cpu,
        cpu=cpu,
        cpu_count=usable_cpus(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        platform_name=f"{platform.system()} {platform.machine()}",
        device=device,
    )


def with_fingerprint(
    *,
    device_name: str,
    cpu: str,
    cpu_count: int,
    memory_bytes: int,
    platform_name: str,
    device: Device | None = None,
) -> Hardware:
    """Return the facts with their fingerprint: 12 hexadecimal digits, equal on equal machines.

    Memory enters it in whole GiB, because the kernel keeps a few MiB more or less on machines of one kind.
    """
    facts = [device_name, cpu, cpu_count, round(memory_bytes / 2**30), platform_name]
    return Hardware(
        device_name=device_name,
        cpu=cpu,
        cpu_count=cpu_count,
        memory_bytes=memory_bytes,
        platform=platform_name,
        fingerprint=hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:12],
        device=device,
    )


def cpu_name() -> str:
    """Return the processor's name as the kernel gives it; its architecture where it gives none (many ARM machines)."""
    try:
        lines = _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return " ".join(value.split())
    return platform.processor() or platform.machine() or "unknown processor"


def usable_cpus() -> int:
    """Return how many logical processors this process may use, at least 1."""
    # sched_getaffinity exists on Linux only.
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, _, period = _CPU_QUOTA.read_text(encoding="ascii").partition(" ")
    except OSError:
        return allowed
    if quota == "max":
        return allowed
    return max(1, min(allowed, int(quota) // int(period)))
