"""Finds the living processes of a run, in whatever session they are, by a variable in their environment."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

MARKER = "GRADWIRE_RUN_ID"
"""The variable; its value is the run's own."""

_SETTLING_SECONDS = 1.0
# From linux/sched.h.
_PF_KTHREAD = 0x00200000


def find_marked(marker: str) -> list[int]:
    """Return the ids of the living processes whose environment carries `marker`; zombies have none."""
    entry = f"{MARKER}={marker}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        # Gone in the meantime, or another user's.
        with suppress(OSError):
            if entry in _environment(folder).split(b"\0"):
                found.append(int(folder.name))
    return found


def signal_marked(marker: str, number: signal.Signals) -> None:
    """Send a signal to every living process whose environment carries `marker`."""
    for pid in find_marked(marker):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _environment(folder: Path) -> bytes:
    """Return the environment of the process whose /proc folder this is.

    A process has none to show while it is replaced by execve, and from when it gives its memory back until it is a
    zombie. On a busy machine either may last, and one of the run's would be overlooked: this waits until it is over.
    """
    deadline = time.monotonic() + _SETTLING_SECONDS
    while time.monotonic() < deadline:
        # Recent kernels say "no such process" of one without memory.
        with suppress(ProcessLookupError):
            if environment := (folder / "environ").read_bytes():
                return environment
        if _has_no_environment(folder):
            break
        time.sleep(0.001)
    return b""


def _has_no_environment(folder: Path) -> bool:
    """Return whether a process has none for good: a zombie, the kernel's own, or one that was started without."""
    # The name in parentheses may hold anything; the third field of proc_pid_stat(5) comes after it.
    fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
    state, flags, code_start, start, end = fields[0], *(int(fields[number - 3]) for number in (9, 26, 50, 51))
    # execve sets the start of the code last: until then the end of the environment says nothing.
    is_started = code_start != 0
    return state in (b"Z", b"X") or bool(flags & _PF_KTHREAD) or (is_started and start == end)
