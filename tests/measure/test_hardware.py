"""Facts of the machine, without its name."""

from __future__ import annotations

import os
import platform
import re
from typing import Any

from msgspec.structs import asdict

from gradwire.measure.hardware import hardware, with_fingerprint

FACTS: dict[str, Any] = {
    "device_name": "NVIDIA H200",
    "cpu": "A Processor",
    "cpu_count": 8,
    "memory_bytes": 64 * 2**30,
    "platform_name": "Linux x86_64",
}


def test_this_machine_is_described_without_its_name() -> None:
    facts = hardware()
    assert facts.device_name == facts.cpu
    assert 1 <= facts.cpu_count <= (os.cpu_count() or 1)
    assert facts.memory_bytes > 2**28
    assert re.fullmatch("[0-9a-f]{12}", facts.fingerprint)
    assert platform.node() not in [str(value) for value in asdict(facts).values()]


def test_an_accelerator_goes_by_its_own_name() -> None:
    assert hardware("NVIDIA H200").device_name == "NVIDIA H200"
    assert hardware("NVIDIA H200").fingerprint != hardware().fingerprint


def test_equal_machines_have_equal_fingerprints() -> None:
    one = with_fingerprint(**FACTS)
    a_few_megabytes_less = with_fingerprint(**FACTS | {"memory_bytes": 64 * 2**30 - 5_000_000})
    assert one.fingerprint == a_few_megabytes_less.fingerprint


def test_each_fact_changes_the_fingerprint() -> None:
    others = {"device_name": "x", "cpu": "x", "cpu_count": 4, "memory_bytes": 2**35, "platform_name": "x"}
    prints = {with_fingerprint(**FACTS | {name: value}).fingerprint for name, value in others.items()}
    assert len(prints | {with_fingerprint(**FACTS).fingerprint}) == 6
