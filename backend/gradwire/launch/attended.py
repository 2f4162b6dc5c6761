"""Runs somebody's command as if they had started it themselves: their terminal, their signals, their exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO

from gradwire.errors import EnvironmentNotFit

_TICK_SECONDS = 1.0
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_attended(
    words: Sequence[str],
    *,
    environment: Mapping[str, str],
    every_second: Callable[[], None],
    stdout: IO[bytes] | None = None,
) -> int:
    """Run `words` to their end and return the exit code as a shell does, 128 + number for a signal.

    The command has this process's terminal and streams (its output goes to `stdout` where that is given); signals to
    this process go on to it, but for those that the terminal sends to both. `every_second` is called while it runs;
    what it raises is raised when the command has ended. Raises EnvironmentNotFit where it cannot be started.
    """

    def start() -> subprocess.Popen[bytes]:
        try:
            # On an error while it runs nothing is cleaned up: the signals below are all that ends it.
            return subprocess.Popen(list(words), env=dict(environment), stdout=stdout)
        except OSError as error:
            raise EnvironmentNotFit(f"cannot start {words[0]}: {error.strerror or error}") from error

    with _signals_go_on(start) as process:
        try:
            while (code := _code_within(process, _TICK_SECONDS)) is None:
                every_second()
        finally:
            # It is not left behind, with nobody to pass its signals on, for a fault of ours.
            process.wait()
    return code if code >= 0 else 128 - code


def _code_within(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


@contextmanager
def _signals_go_on(start: Callable[[], subprocess.Popen[bytes]]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process to which signals go on, also those that come before it has started."""
    early: list[int] = []
    process: subprocess.Popen[bytes] | None = None

    def forward(number: int, _frame: FrameType | None) -> None:
        if process is None:
            early.append(number)
        elif number != signal.SIGINT or not _is_in_foreground():
            with suppress(ProcessLookupError):
                process.send_signal(number)

    before = {number: signal.getsignal(number) for number in _FORWARDED}
    # What nohup or a background shell ignores stays ignored.
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, forward)
    try:
        process = start()
        for arrived in early:
            with suppress(ProcessLookupError):
                process.send_signal(arrived)
        yield process
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_in_foreground() -> bool:
    """Return whether Ctrl-C reached the command already, as it does every process of the terminal's foreground."""
    try:
        return os.tcgetpgrp(sys.__stderr__.fileno() if sys.__stderr__ else 2) == os.getpgrp()
    except OSError:
        return False
