"""What every test rests on: marks a machine cannot run, DeepSpeed's operator built ahead, the real libraries asked."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.lint.oracle_client import Oracle

# Every DeepSpeed run on a CPU loads this operator. Cold, compiling it takes longer than any of the runs, and the
# ranks of a run that is stopped meanwhile leave a lock behind that later runs wait for.
_BUILD_OPERATOR = "from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder; ShareMemCommBuilder().load()"


def pytest_configure() -> None:
    # How long examples take decides no test: a busy machine is not a bug. Nor does chance: the same examples each time,
    # unless `--hypothesis-profile anew` asks for others, which pytest's option loads after this.
    untimed = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("anew", untimed, derandomize=False)
    settings.register_profile("fixed", untimed, derandomize=True)
    settings.load_profile("fixed")
    # As in an environment that was activated: the launchers, and one and the same ninja everywhere. Another version of
    # it takes what the first one built for outdated, and compiles DeepSpeed's operator again.
    scripts = str(Path(sys.executable).parent)
    if os.environ["PATH"].split(os.pathsep)[0] != scripts:
        os.environ["PATH"] = f"{scripts}{os.pathsep}{os.environ['PATH']}"
    # Threads that wait for each other spin: on a busy machine a second's work becomes minutes of it.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # A script's background job ignores Ctrl-C, and so would every process that a test starts there and interrupts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # So does everything under nohup when the terminal closes.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    has_gpu = any(Path("/dev").glob("nvidia[0-9]*"))
    skip = pytest.mark.skip(reason="needs a CUDA device: this machine has no /dev/nvidia*")
    for item in items:
        if item.get_closest_marker("gpu") and not has_gpu:
            item.add_marker(skip)
        elif item.get_closest_marker("distributed") and isinstance(item, pytest.Function):
            item.fixturenames.insert(0, "deepspeed_operator")


@pytest.fixture(scope="session")
def deepspeed_operator() -> None:
    """Build the operator, so that no run of a test has to wait for the compiler."""
    subprocess.run(
        [sys.executable, "-c", _BUILD_OPERATOR],
        env={**os.environ, "DS_ACCELERATOR": "cpu"},
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=280,
    )


_NEEDED = ("torch", "deepspeed", "accelerate", "transformers")


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """The libraries in one process, for all tests that ask them."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"asks the real libraries, and {', '.join(missing)} is not installed")
    started = Oracle()
    yield started
    started.close()
