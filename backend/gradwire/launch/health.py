"""Checks this machine for everything that training trips over later, without importing torch."""

from __future__ import annotations

import importlib.util
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gradwire.launch.preflight import build_locks, closed_folders, extension_folders, old_build_locks
from gradwire.launch.probe import Machine, missing_packages, package_versions, port_in_use, probe_machine, program_path

Status = Literal["ok", "warn", "fail"]

KNOWN_TOGETHER = {"torch": "2.13.0", "accelerate": "1.15.0", "deepspeed": "0.19.8", "transformers": "5.24.0"}
"""Versions known to work together: those of constraints.txt, and the lower bounds in pyproject.toml."""

_CORE = ("jsonschema", "msgspec", "yaml", "rich", "ruamel.yaml", "shtab")
_REPORT = ("jinja2", "matplotlib")
_EXTRA = {"torch": "native", "transformers": "native", "accelerate": "accelerate", "deepspeed": "deepspeed"}
_DEFAULT_PORT = 29500
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - looked at, nothing is written there
_SMALL_SHM_BYTES = 1 << 30
_DEEPSPEED_BUFFERS = "deepspeed_allreduce_buffer_*"
_FULL_PROBE = """\
import json, torch, torch.distributed as d
print(json.dumps({"gloo": d.is_gloo_available(), "nccl": d.is_nccl_available(), "cuda": torch.version.cuda,
    "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]}))
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One thing looked at. `fix` is the way out, None where nothing is wrong."""

    name: str
    status: Status
    detail: str
    fix: str | None = None


def check_machine(environment: Mapping[str, str], *, full: bool) -> list[Check]:
    """Return every check; `full` also starts Python with torch, which takes seconds, and asks it for its devices."""
    machine = probe_machine(environment)
    versions = package_versions(KNOWN_TOGETHER)
    return [
        _python(),
        _core_packages(),
        *(_package(name, version) for name, version in versions.items()),
        _report_packages(),
        _devices(machine, versions["torch"]),
        _process_groups(machine),
        *([_torch_itself(machine)] if full else []),
        _cores(machine),
        _shared_memory(),
        _compiler(machine),
        _build_locks(environment),
        _port(),
        _host_name(),
    ]


def _python() -> Check:
    version = ".".join(str(number) for number in sys.version_info[:3])
    return Check(name="python", status="ok", detail=f"{version} {sys.executable}")


def _core_packages() -> Check:
    missing = missing_packages(_CORE)
    if missing:
        return Check(name="core", status="fail", detail=f"missing: {', '.join(missing)}", fix="pip install gradwire")
    return Check(name="core", status="ok", detail="validating and lowering work")


def _package(name: str, version: str | None) -> Check:
    known = KNOWN_TOGETHER[name]
    if version is None:
        fix = f"pip install 'gradwire[{_EXTRA[name]}]', to train with it"
        return Check(name=name, status="warn", detail="not installed", fix=fix)
    if _numbers(version) == _numbers(known):
        return Check(name=name, status="ok", detail=version)
    if _numbers(version) < _numbers(known):
        return Check(name=name, status="fail", detail=f"{version} is too old", fix=f"pip install -U '{name}>={known}'")
    fix = f"nothing to do unless something breaks: {known} is the version known to work"
    return Check(name=name, status="warn", detail=f"{version} is newer than what was tested", fix=fix)


def _numbers(version: str) -> tuple[int, ...]:
    release = version.split("+")[0].split(".")[:3]
    return tuple(int("".join(digit for digit in part if digit.isdigit()) or 0) for part in release)


def _report_packages() -> Check:
    missing = missing_packages(_REPORT)
    if missing:
        fix = "pip install 'gradwire[report]', for the chart and the HTML report of `gradwire compare`"
        return Check(name="report", status="warn", detail=f"missing: {', '.join(missing)}", fix=fix)
    return Check(name="report", status="ok", detail="chart and HTML report work")


def _devices(machine: Machine, torch: str | None) -> Check:
    hidden = f", {machine.hidden_cuda_devices} hidden by CUDA_VISIBLE_DEVICES" if machine.hidden_cuda_devices else ""
    if machine.cuda_devices and torch and "+cpu" in torch:
        return Check(
            name="devices",
            status="fail",
            detail=f"{machine.cuda_devices} GPU(s), but torch {torch} is a build without CUDA",
            fix="install torch from https://pytorch.org/get-started for your CUDA version",
        )
    if machine.cuda_devices:
        return Check(name="devices", status="ok", detail=f"{machine.cuda_devices} GPU(s){hidden}")
    fix = "recipes for cuda lower and validate here; --device cpu, or a cpu/ preset, trains"
    return Check(name="devices", status="warn", detail=f"no GPU{hidden}", fix=fix)


def _process_groups(machine: Machine) -> Check:
    if "torch" not in machine.packages:
        return Check(name="collectives", status="warn", detail="none: torch is not installed")
    spec = importlib.util.find_spec("torch")
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    with_cuda = any((Path(folder) / "lib" / "libtorch_cuda.so").exists() for folder in folders)
    return Check(name="collectives", status="ok", detail="gloo, nccl" if with_cuda else "gloo (torch without CUDA)")


def _torch_itself(machine: Machine) -> Check:
    if "torch" not in machine.packages:
        return Check(name="torch runs", status="fail", detail="not installed", fix="pip install 'gradwire[native]'")
    try:
        ended = subprocess.run([sys.executable, "-c", _FULL_PROBE], capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return Check(name="torch runs", status="fail", detail="`import torch` did not finish in 120 s")
    if ended.returncode:
        said = ended.stderr.strip().splitlines()
        return Check(name="torch runs", status="fail", detail=said[-1] if said else f"exit code {ended.returncode}")
    found = json.loads(ended.stdout)
    devices = ", ".join(found["devices"]) or "no GPU"
    available = ", ".join(name for name in ("gloo", "nccl") if found[name]) or "no collectives"
    status: Status = "ok" if len(found["devices"]) == machine.cuda_devices else "fail"
    detail = f"{available}; CUDA {found['cuda'] or 'none'}; {devices}"
    fix = None if status == "ok" else f"{machine.cuda_devices} GPU(s) have a device file: is the driver loaded?"
    return Check(name="torch runs", status=status, detail=detail, fix=fix)


def _cores(machine: Machine) -> Check:
    if machine.cores < machine.cuda_devices:
        detail = f"{machine.cores} usable by {machine.cuda_devices} GPUs: their processes would wait for each other"
        fix = (
            "let the job have more: --cpus-per-task with srun, --cpus or --cpuset-cpus in Docker, `taskset -p $$` shows"
        )
        return Check(name="cores", status="warn", detail=detail, fix=fix)
    return Check(name="cores", status="ok", detail=f"{machine.cores} usable")


def _shared_memory() -> Check:
    name = str(_SHARED_MEMORY)
    if not _SHARED_MEMORY.is_dir():
        return Check(name=name, status="warn", detail="missing", fix="NCCL and data loaders need it: mount a tmpfs")
    usage = shutil.disk_usage(_SHARED_MEMORY)
    detail = f"{usage.free / 2**30:.1f} of {usage.total / 2**30:.1f} GiB free"
    # DeepSpeed leaves one behind for each rank of each run on CPU.
    buffers = len(list(_SHARED_MEMORY.glob(_DEEPSPEED_BUFFERS)))
    if buffers:
        detail += f"; {buffers} buffers of DeepSpeed runs, 66 MB each"
    if usage.total < _SMALL_SHM_BYTES:
        return Check(name=name, status="warn", detail=detail, fix="in Docker: --shm-size 8g, or --ipc host")
    if buffers and usage.free < _SMALL_SHM_BYTES:
        fix = f"while no DeepSpeed run is going: rm {_SHARED_MEMORY / _DEEPSPEED_BUFFERS}"
        return Check(name=name, status="warn", detail=detail, fix=fix)
    return Check(name=name, status="ok", detail=detail)


def _compiler(machine: Machine) -> Check:
    missing = [name for name in ("c++", "ninja") if program_path(name) is None]
    if not missing:
        return Check(name="compiler", status="ok", detail=f"{program_path('c++')}, ninja")
    if "deepspeed" not in machine.packages:
        return Check(name="compiler", status="ok", detail=f"no {' and no '.join(missing)}; only DeepSpeed needs them")
    fix = "DeepSpeed compiles operators on first use: install g++ and `pip install ninja`"
    return Check(name="compiler", status="warn", detail=f"missing: {', '.join(missing)}", fix=fix)


def _build_locks(environment: Mapping[str, str]) -> Check:
    folders = extension_folders(environment)
    old = old_build_locks(folders, now=time.time())
    if old:
        locks = " ".join(str(lock) for lock, _ in build_locks(folders))
        return Check(
            name="build locks",
            status="fail",
            detail=f"{len(old)} left by operator builds that were killed; runs wait for them forever",
            fix=f"rm {locks}",
        )
    closed = closed_folders(folders)
    if closed:
        place, _, fix = closed[0].rpartition("; ")
        return Check(name="build locks", status="warn", detail=place, fix=fix)
    young = len(build_locks(folders))
    return Check(name="build locks", status="ok", detail=f"{young} build(s) running" if young else "none left behind")


def _port() -> Check:
    if port_in_use(_DEFAULT_PORT):
        fix = "runs on one machine pick a free port; between machines give --rdzv HOST:PORT another one"
        return Check(name="port", status="warn", detail=f"{_DEFAULT_PORT}, torch's default, is in use", fix=fix)
    return Check(name="port", status="ok", detail=f"{_DEFAULT_PORT} is free")


def _host_name() -> Check:
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        fix = f"gloo and NCCL look it up: add `127.0.0.1 {name}` to /etc/hosts, or set GLOO_SOCKET_IFNAME"
        return Check(name="host name", status="warn", detail="does not resolve to an address", fix=fix)
    return Check(name="host name", status="ok", detail="resolves to an address")
