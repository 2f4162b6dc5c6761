"""Devices, packages and ports, without torch."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from gradwire.launch.probe import (
    count_device_files,
    count_visible,
    free_port,
    missing_packages,
    package_versions,
    port_in_use,
)


def test_device_files_are_counted_without_the_control_files(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-caps", "null"):
        (tmp_path / name).touch()
    assert count_device_files(tmp_path) == 2


@pytest.mark.parametrize(
    ("present", "visible_devices", "expected"),
    [
        (4, None, 4),
        (4, "", 0),
        (4, "-1", 0),
        (4, "0,2", 2),
        (4, "0, 1 ,3", 3),
        (4, "0,-1,1", 1),
        (4, "7", 0),
        (4, "0,9,1", 1),
        (1, "MIG-6f3a", 1),
        (2, "GPU-8a01,GPU-8a02", 2),
        (0, "0", 0),
    ],
)
def test_visible_devices_are_read_as_cuda_reads_them(present: int, visible_devices: str | None, expected: int) -> None:
    assert count_visible(present, visible_devices) == expected


def test_missing_package_has_no_version() -> None:
    assert package_versions(["no_such_package_here", "no_such.below"]) == {
        "no_such_package_here": None,
        "no_such.below": None,
    }
    assert missing_packages(["no_such_package_here", "msgspec", "no_such.below"]) == [
        "no_such_package_here",
        "no_such.below",
    ]


def test_installed_package_has_a_version() -> None:
    assert package_versions(["msgspec"])["msgspec"]


def test_listening_port_is_in_use_and_free_again_afterwards() -> None:
    port = free_port()
    # Below those that Linux gives to connections, which may be gone before a launcher listens there.
    assert 20_000 <= port < 32_768
    with socket.socket() as listener:
        listener.bind(("", port))
        listener.listen()
        assert port_in_use(port)
    assert not port_in_use(port)
