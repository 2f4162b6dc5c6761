"""Runs one command to its end: live output, a log, a time limit, and no process left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from gradwire.errors import EnvironmentNotFit
from gradwire.launch.marked import MARKER, find_marked, signal_marked

_KEPT_LINES = 2000
_POLL_SECONDS = 0.05
_ORPHANS_SECONDS = 1.0
# From linux/prctl.h.
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How a run ended.

    `exit_code` is negative for a signal, as in `subprocess`. `lines` are the last lines of its output, oldest first.
    """

    exit_code: int
    timed_out: bool
    seconds: float
    lines: tuple[str, ...]
    log: Path


def run(
    words: Sequence[str],
    *,
    environment: Mapping[str, str],
    log: Path,
    timeout_seconds: float | None = None,
    echo: BinaryIO | None = None,
    patience_seconds: float = 10.0,
) -> Ended:
    """Run `words` and return how it ended; its output goes to `log` and, live, to `echo`.

    Every process that the run started, in whatever session, is gone when this returns or raises: they are found by a
    variable in their environment, because torchrun gives each worker a session of its own. After `timeout_seconds`,
    Ctrl-C or SIGTERM the launcher is told first and has `patience_seconds`; then all get SIGTERM, then SIGKILL.
    Raises KeyboardInterrupt on SIGINT and SystemExit(128 + number) on SIGTERM and SIGHUP, after the cleaning up; what
    the launcher says of its being interrupted goes to the log alone. Should this process be killed with SIGKILL, Linux
    sends the launcher SIGTERM.
    Call it from the main thread: signals arrive there.
    """
    marker = uuid.uuid4().hex
    started = time.monotonic()
    timed_out = False
    first_signal: signal.Signals = signal.SIGTERM
    with log.open("wb") as log_file, _signals_raise() as signals:
        process, output = _start(words, {**environment, MARKER: marker})
        pump = _Pump(output, log_file, echo)
        try:
            signals.release()
            process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
        except (KeyboardInterrupt, SystemExit) as interruption:
            if isinstance(interruption, KeyboardInterrupt):
                first_signal = signal.SIGINT
            pump.silence()
            raise
        finally:
            _end_all(process, marker, first_signal, patience_seconds)
            pump.finish()
    return Ended(
        exit_code=process.returncode,
        timed_out=timed_out,
        seconds=time.monotonic() - started,
        lines=tuple(pump.lines),
        log=log,
    )


def _start(words: Sequence[str], environment: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], int]:
    """Start `words` in a session of their own; return the process and the descriptor that its output comes from."""
    output, written = os.pipe()
    try:
        process = subprocess.Popen(
            list(words),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # Safe before there are threads; the pump's starts later.
            preexec_fn=_end_with_parent(),
        )
    except OSError as error:
        os.close(output)
        raise EnvironmentNotFit(f"cannot start {words[0]}: {error.strerror}") from error
    finally:
        os.close(written)
    return process, output


def _end_with_parent() -> Callable[[], None] | None:
    """Return what makes a forked child get SIGTERM when this process dies; None where the system has no such thing."""
    if sys.platform != "linux":
        return None
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    return ask


class _Pump:
    """Copies the run's output to the log and the screen while it runs, and keeps the last lines."""

    def __init__(self, source: int, log_file: BinaryIO, echo: BinaryIO | None) -> None:
        self.lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._source = source
        self._log = log_file
        self._targets = [log_file] if echo is None else [log_file, echo]
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        rest = b""
        while chunk := os.read(self._source, 65536):
            for target in self._targets:
                try:
                    target.write(chunk)
                    target.flush()
                except OSError:
                    # A closed terminal or a full disk must not stall the training, which would block on a full pipe.
                    self._targets = [each for each in self._targets if each is not target]
            *whole, rest = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
            self.lines.extend(line.decode(errors="replace") for line in whole if line.strip())
        if rest.strip():
            self.lines.append(rest.decode(errors="replace"))

    def silence(self) -> None:
        """Copy to the log alone from now on."""
        self._targets = [self._log]

    def finish(self) -> None:
        # All writers are dead by now, so the end of the stream is there.
        self._thread.join(timeout=5)
        os.close(self._source)


def _end_all(process: subprocess.Popen[bytes], marker: str, first_signal: signal.Signals, patience: float) -> None:
    """Wait for the run's processes to be gone, with more force in each round; a second Ctrl-C skips to SIGKILL."""
    hurry = threading.Event()

    def skip_ahead(_signal: int, _frame: FrameType | None) -> None:
        hurry.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, skip_ahead)

    def is_launcher_gone() -> bool:
        return process.poll() is not None

    def are_all_gone() -> bool:
        return is_launcher_gone() and not find_marked(marker)

    if not is_launcher_gone():
        with suppress(ProcessLookupError):
            os.killpg(process.pid, first_signal)
        _wait(is_launcher_gone, patience, hurry)
    # Workers of a launcher that has ended are orphans: what they do now, nobody waits for.
    if _wait(are_all_gone, _ORPHANS_SECONDS, hurry):
        return
    signal_marked(marker, signal.SIGTERM)
    if _wait(are_all_gone, 3.0, hurry):
        return
    signal_marked(marker, signal.SIGKILL)
    _wait(are_all_gone, 5.0, threading.Event())


def _wait(condition: Callable[[], bool], seconds: float, hurry: threading.Event) -> bool:
    """Return whether `condition` held within `seconds`, and before somebody was in a hurry."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline or hurry.is_set():
            return False
        hurry.wait(_POLL_SECONDS)
    return True


class _Signals:
    """Raises what a signal means once, and not before `release`: until then nobody would end a started process."""

    def __init__(self) -> None:
        self._is_held = True
        self._pending: int | None = None

    def arrive(self, number: int, _frame: FrameType | None) -> None:
        if self._is_held:
            self._pending = self._pending or number
            return
        # A second one must not cut short the way to the cleaning up, which has handlers of its own.
        self._is_held = True
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    def release(self) -> None:
        self._is_held = False
        if self._pending is not None:
            self.arrive(self._pending, None)


@contextmanager
def _signals_raise() -> Iterator[_Signals]:
    """SIGINT raises KeyboardInterrupt, SIGTERM and SIGHUP raise SystemExit, from `release` until the block ends."""
    signals = _Signals()
    replaced = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    # What nohup or a background shell ignores stays ignored.
    replaced = {number: handler for number, handler in replaced.items() if handler is not signal.SIG_IGN}
    for number in replaced:
        signal.signal(number, signals.arrive)
    try:
        yield signals
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)
