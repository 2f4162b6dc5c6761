"""Marks: what a machine cannot run is skipped, with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if any(Path("/dev").glob("nvidia[0-9]*")):
        return
    skip = pytest.mark.skip(reason="needs a CUDA device: this machine has no /dev/nvidia*")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)
