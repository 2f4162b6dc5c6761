"""The lab's namespaces: links are as slow as asked, nothing outlives the lab, and no permission is said so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.netlab.isolate import isolation
from benchmarks.netlab.launch import REPOSITORY, worker_environment

_LINK = """
from benchmarks.netlab.link_speed import measure_link
from benchmarks.netlab.network import linked_hosts
for rate in (200, 50):
    with linked_hosts(3, rate, congestion_control="reno") as hosts:
        print(rate, measure_link(hosts[0], hosts[2], payload_bytes=rate * 40_000).bits_per_second / 1e6)
"""
_ENDLESS = """
import sys
from benchmarks.netlab.isolate import isolation, run_isolated
run_isolated(isolation()[0], [sys.executable, "-c", sys.argv[1]])
"""
_SLEEPER = """
import subprocess, time
subprocess.Popen(["setsid", "sleep", "600.{token}"])
print("up", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def wrapper() -> tuple[str, ...]:
    words, reason = isolation()
    if words is None:
        pytest.skip(f"network namespaces are not allowed here: {reason}")
    return words


def test_links_carry_no_more_than_their_rate(wrapper: tuple[str, ...]) -> None:
    done = subprocess.run(
        [*wrapper, sys.executable, "-c", _LINK], env=worker_environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    measured = dict(map(float, line.split()) for line in done.stdout.splitlines())
    assert set(measured) == {200, 50}
    assert all(0 < speed <= rate for rate, speed in measured.items())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_the_lab_however_it_ends(wrapper: tuple[str, ...], number: signal.Signals) -> None:
    token = str(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", _ENDLESS, _SLEEPER.format(token=token)],
        env=worker_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            # A process that is being started has no command line for a moment.
            assert _becomes(lambda: _running(f"600.{token}"))
            # Ctrl-C reaches the whole foreground group, other signals the one process that somebody named.
            (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
            process.wait(timeout=30)
        finally:
            process.kill()
    assert _becomes(lambda: not _running(f"600.{token}"))


def _becomes(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return holds


def test_a_system_without_namespaces_is_told_what_to_do(tmp_path: Path) -> None:
    refusing = tmp_path / "unshare"
    refusing.write_text("#!/bin/sh\necho 'unshare: Operation not permitted' >&2\nexit 1\n")
    refusing.chmod(0o755)
    done = _lab("bench", path=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 4
    assert done.stderr.startswith("skipped: ")
    assert "Operation not permitted" in done.stderr
    assert "--link loopback" in done.stderr


@pytest.mark.distributed
@pytest.mark.slow
def test_the_lab_measures_over_loopback_without_shaping(tmp_path: Path) -> None:
    options = ["--link", "loopback", "--rounds", "1", "--compute-seconds", "0.02", "--visit-seconds", "0.1"]
    done = _lab("bench", *options, "--configurations", "powersgd-r4@4.5", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "| powersgd-r4@4.5 " in done.stdout
    assert {path.name for path in tmp_path.iterdir()} >= {"rows.jsonl", "rows.csv", "table.md", "chart.svg"}


def _lab(*arguments: str, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.netlab", *arguments],
        cwd=REPOSITORY,
        env={**worker_environment(), "PATH": path},
        capture_output=True,
        text=True,
        timeout=200,
    )


def _running(word: str) -> bool:
    """Tell whether any process has `word` on its command line; those that ended in between do not."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if word.encode() in words:
                return True
    return False
