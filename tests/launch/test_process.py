"""Running a command: output, exit codes, time limit, signals, and no process left behind."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from gradwire.errors import EnvironmentNotFit
from gradwire.launch import marked
from gradwire.launch.marked import find_marked
from gradwire.launch.process import Ended, run

# Prints its own id and that of a child in a session of its own, as torchrun's workers are. In a shell, which starts in
# no time: a time limit that ends a run must not come before the run has spoken, however busy the machine is.
FAMILY = """\
setsid sleep 600 &
echo pids $$ $!
{then}
"""


def run_python(code: str, log: Path, **options: float) -> Ended:
    return run([sys.executable, "-c", code], environment=os.environ, log=log, **options)


def run_shell(code: str, log: Path, **options: float) -> Ended:
    return run(["sh", "-c", code], environment=os.environ, log=log, **options)


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        # The second where it ended between the opening and the reading.
        return False


def pids_in(lines: tuple[str, ...]) -> list[int]:
    return [int(word) for line in lines if line.startswith("pids") for word in line.split()[1:]]


def test_output_goes_to_log_screen_and_result(tmp_path: Path) -> None:
    log, screen = tmp_path / "log", io.BytesIO()
    code = "import sys; print('one', flush=True); print('two', file=sys.stderr, flush=True); print('three', end='')"
    ended = run([sys.executable, "-c", code], environment=os.environ, log=log, echo=screen)
    assert (ended.exit_code, ended.timed_out) == (0, False)
    assert ended.lines == ("one", "two", "three")
    assert log.read_bytes() == screen.getvalue() == b"one\ntwo\nthree"


def test_more_output_than_a_pipe_holds_does_not_block(tmp_path: Path) -> None:
    ended = run_python("print('x' * 100 + '\\n', end='')\n" * 3 + "print('y' * 1_000_000)", tmp_path / "log")
    assert ended.exit_code == 0
    assert (tmp_path / "log").stat().st_size == 3 * 101 + 1_000_001


@pytest.mark.parametrize(("code", "expected"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)])
def test_exit_code_is_the_childs(tmp_path: Path, code: str, expected: int) -> None:
    assert run_python(code, tmp_path / "log").exit_code == expected


def test_missing_program_is_an_unfit_environment(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentNotFit, match="cannot start no-such-launcher: No such file"):
        run(["no-such-launcher"], environment=os.environ, log=tmp_path / "log")


def test_time_limit_ends_the_whole_family(tmp_path: Path) -> None:
    ended = run_shell(FAMILY.format(then="sleep 600"), tmp_path / "log", timeout_seconds=2)
    pids = pids_in(ended.lines)
    assert ended.timed_out
    assert len(pids) == 2
    assert not any(is_alive(pid) for pid in pids)


def test_child_that_outlives_its_launcher_is_ended(tmp_path: Path) -> None:
    ended = run_shell(FAMILY.format(then="exit 0"), tmp_path / "log")
    assert ended.exit_code == 0
    assert len(pids_in(ended.lines)) == 2
    assert not any(is_alive(pid) for pid in pids_in(ended.lines))


def test_process_in_execve_is_found(tmp_path: Path) -> None:
    script = tmp_path / "again.sh"
    script.write_text('exec /bin/sh "$0"\n')
    # Every process of the machine is looked at: not a name that another run of the tests would use too.
    marker = uuid.uuid4().hex
    process = subprocess.Popen(["/bin/sh", script], env={**os.environ, "GRADWIRE_RUN_ID": marker})
    try:
        assert all(process.pid in find_marked(marker) for _ in range(200))
    finally:
        process.kill()
        process.wait()
    assert find_marked(marker) == []


def test_process_without_environment_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # Whoever waited for one would wait for longer than a test may take.
    monkeypatch.setattr(marked, "_SETTLING_SECONDS", 3600.0)
    process = subprocess.Popen(["/bin/sleep", "600"], env={})
    try:
        assert process.pid not in find_marked("any")
    finally:
        process.kill()
        process.wait()


def test_process_that_ignores_every_signal_is_killed(tmp_path: Path) -> None:
    # What the shell ignores its children ignore too.
    deaf = "trap '' TERM\n" + FAMILY.format(then="echo deaf; sleep 600")
    ended = run_shell(deaf, tmp_path / "log", timeout_seconds=2, patience_seconds=0.2)
    assert "deaf" in ended.lines
    assert ended.exit_code == -signal.SIGKILL
    assert len(pids_in(ended.lines)) == 2
    assert not any(is_alive(pid) for pid in pids_in(ended.lines))


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signal_ends_the_family_before_the_caller(tmp_path: Path, number: signal.Signals, expected: int) -> None:
    log = tmp_path / "log"
    caller = (
        "import os, sys\nfrom pathlib import Path\nfrom gradwire.launch.process import run\n"
        f"code = {FAMILY.format(then='sleep 600')!r}\n"
        "try:\n"
        f"    run(['sh', '-c', code], environment=os.environ, log=Path({str(log)!r}))\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(130)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", caller])
    try:
        deadline = time.monotonic() + 60
        while not (log.exists() and b"pids" in log.read_bytes()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(60) == expected
    finally:
        process.kill()
        process.wait()
    pids = pids_in(tuple(log.read_text().splitlines()))
    assert len(pids) == 2
    assert not any(is_alive(pid) for pid in pids)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
def test_launcher_of_a_killed_caller_is_told(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from gradwire.launch.process import run\n"
        f"run([sys.executable, '-c', 'import os, time; print(os.getpid(), flush=True); time.sleep(60)'],"
        f" environment=os.environ, log=Path({str(tmp_path / 'log')!r}))"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as caller:
        deadline = time.monotonic() + 60
        while not (said := (tmp_path / "log").read_text() if (tmp_path / "log").exists() else ""):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        caller.kill()
    while is_alive(int(said)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_ignored_hangup_stays_ignored(tmp_path: Path) -> None:
    caller = (
        "import os, signal, sys, threading\nfrom pathlib import Path\nfrom gradwire.launch.process import run\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGHUP)).start()\n"
        f"ended = run(['sleep', '1'], environment=os.environ, log=Path({str(tmp_path / 'log')!r}))\n"
        "sys.exit(ended.exit_code)\n"
    )
    assert subprocess.run([sys.executable, "-c", caller], timeout=60).returncode == 0


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_signal_while_the_launcher_starts_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, expected: type[BaseException]
) -> None:
    started: list[int] = []

    class SignalledPopen(subprocess.Popen[bytes]):
        def __init__(self, *words: Any, **options: Any) -> None:
            super().__init__(*words, **options)
            started.append(self.pid)
            os.kill(os.getpid(), number)

    monkeypatch.setattr(subprocess, "Popen", SignalledPopen)
    with pytest.raises(expected):
        run_python("import time; time.sleep(60)", tmp_path / "log")
    assert len(started) == 1
    assert not is_alive(started[0])
