"""Looks at the machine without importing torch: devices, packages, ports, shared memory, compilers."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gradwire.errors import EnvironmentNotFit

LIBRARIES = ("torch", "accelerate", "deepspeed", "transformers", "numpy", "psutil")
"""Import names of what training needs from the extras."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """What this machine offers.

    `cuda_devices` are the GPUs that a process started here would see, `hidden_cuda_devices` those that
    CUDA_VISIBLE_DEVICES takes away. `packages` are those of `LIBRARIES` that are installed.
    """

    cuda_devices: int
    hidden_cuda_devices: int
    cores: int
    packages: frozenset[str]


def probe_machine(environment: Mapping[str, str]) -> Machine:
    """Return what this machine offers to a process with `environment`."""
    present = count_device_files(Path("/dev"))
    visible = count_visible(present, environment.get("CUDA_VISIBLE_DEVICES"))
    return Machine(
        cuda_devices=visible,
        hidden_cuda_devices=present - visible,
        cores=usable_cores(),
        packages=frozenset(LIBRARIES).difference(missing_packages(LIBRARIES)),
    )


def count_device_files(folder: Path) -> int:
    """Return the number of NVIDIA GPUs whose device file is in `folder`: a container sees its own ones only."""
    return sum(re.fullmatch(r"nvidia\d+", path.name) is not None for path in folder.iterdir())


def count_visible(present: int, visible_devices: str | None) -> int:
    """Return how many of `present` GPUs CUDA shows under CUDA_VISIBLE_DEVICES `visible_devices`.

    As CUDA reads it: the list ends at the first entry that names no GPU. An entry that is no number (a UUID, a MIG
    slice) is taken at its word.
    """
    if visible_devices is None:
        return present
    if present == 0:
        return 0
    count = 0
    for entry in visible_devices.split(","):
        name = entry.strip()
        if not name or (name.lstrip("-").isdigit() and not 0 <= int(name) < present):
            break
        count += 1
    return count


def usable_cores() -> int:
    """Return the number of logical processors that this process may use."""
    return len(os.sched_getaffinity(0))


def missing_packages(import_names: Iterable[str]) -> list[str]:
    """Return those of the packages that cannot be imported, in their order; none is imported to find out."""
    return [name for name in import_names if not _is_installed(name)]


def package_versions(import_names: Iterable[str]) -> dict[str, str | None]:
    """Return the version of each package that can be imported, "unknown" without metadata, None where it is missing."""
    return {name: _version(name) if _is_installed(name) else None for name in import_names}


def _is_installed(import_name: str) -> bool:
    # Imported here, as below: every verb imports this module, and few ask.
    import importlib.util

    try:
        return importlib.util.find_spec(import_name) is not None
    except (ImportError, ValueError):
        return False


def _version(import_name: str) -> str:
    # Takes 14 ms to import.
    import importlib.metadata

    try:
        return importlib.metadata.version(import_name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def port_in_use(port: int) -> bool:
    """Return whether another process listens on `port` of any of this machine's addresses."""
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As torch's store does: a port whose last connection is only fading out may be taken again.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return True
    return False


def free_port() -> int:
    """Return a port at which nobody listens, and that the system gives to nobody who asks for just any port.

    Linux hands out ports from 32768 on, to every connection: one of those may be gone by the time, seconds later, that
    a launched process listens there. Raises EnvironmentNotFit where all that were tried are taken.
    """
    import random

    for port in random.SystemRandom().sample(range(20_000, 32_768), 100):
        if not port_in_use(port):
            return port
    raise EnvironmentNotFit("100 ports between 20000 and 32767 were tried, and a process listens at each of them")


def loopback_works() -> bool:
    """Return whether processes of this machine can reach each other by 127.0.0.1; an isolated sandbox may have none."""
    import socket

    try:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)
            with socket.socket() as caller:
                caller.settimeout(5)
                caller.connect(listener.getsockname())
    except OSError:
        return False
    return True


def program_path(name: str) -> str | None:
    """Return where `name` is, looked for beside this interpreter first, then on PATH; None when it is nowhere."""
    import shutil

    return shutil.which(name, path=search_path(os.environ))


def search_path(environment: Mapping[str, str]) -> str:
    """Return PATH with this interpreter's folder in front: a virtual environment works without being activated."""
    own = str(Path(sys.executable).parent)
    rest = environment.get("PATH", os.defpath)
    return own if not rest else f"{own}{os.pathsep}{rest}"
