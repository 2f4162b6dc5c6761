"""Says what a bad end means: from the word a rank left, the exit code, and the launcher's last lines."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gradwire.errors import (
    CannotLower,
    EnvironmentNotFit,
    GradwireError,
    RunFailed,
    ThresholdNotMet,
    UsageError,
)
from gradwire.launch.process import Ended

_SHOWN_LINES = 8
_CLASSES: dict[int, type[GradwireError]] = {
    kind.exit_code: kind for kind in (RunFailed, UsageError, CannotLower, EnvironmentNotFit, ThresholdNotMet)
}
_RANK_PREFIX = re.compile(r"^\[rank\d+\]: ?")
_TRACEBACK = "Traceback (most recent call last):"
# torchrun and accelerate launch: the first worker that failed.
_TORCH_FAILED = re.compile(r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<rank>\d+)")
_DEEPSPEED_FAILED = re.compile(r"--local_rank=(?P<rank>\d+)'.* exits with return code = (?P<code>-?\d+)")
_USUAL_REASON = {
    signal.SIGKILL: "usually the machine ran out of memory: `dmesg` says so; try a smaller training.batch_size_per_gpu",
    signal.SIGSEGV: "a crash in compiled code: often two builds that don't fit together, `gradwire doctor` shows them",
    signal.SIGABRT: "a library gave up: the reason is in the log, often just above the word `terminate`",
    signal.SIGTERM: "something outside asked it to stop: a scheduler, or `kill`",
    signal.SIGBUS: "often /dev/shm is full: `df -h /dev/shm`",
    signal.SIGILL: "a library built for another processor",
}
_KNOWN_TROUBLE: tuple[tuple[str, str], ...] = (
    (
        r"(?:EADDRINUSE|[Aa]ddress already in use)",
        "the rendezvous port is in use{port}; --rdzv HOST:PORT takes another",
    ),
    (
        r"OutOfMemoryError|CUDA out of memory",
        "the GPU's memory is full; try a smaller training.batch_size_per_gpu, training.gradient_checkpointing=true "
        "or a sharding strategy",
    ),
    (r"No space left on device", "a disk is full (No space left on device); see `df -h . /tmp /dev/shm`"),
    (r"ModuleNotFoundError: No module named '(?P<name>[^']+)'", "the Python package `{name}` is not installed"),
    (r"unhandled cuda error|NCCL (?:error|WARN)", "NCCL failed; run again with NCCL_DEBUG=INFO to see where"),
    (
        r"(?:RendezvousTimeoutError|DistStoreError|Timed out .*waiting for clients|RendezvousConnectionError)",
        "the processes did not all meet: is every node started, with the same --rdzv, and is that port reachable?",
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """The word that the first failing rank left."""

    exit_code: int
    message: str
    rank: int


def read_failure(error_file: Path) -> Failure | None:
    """Return what the failing rank wrote into `error_file`; None when it wrote nothing that can be read."""
    try:
        record = json.loads(error_file.read_text(encoding="utf-8"))
        return Failure(exit_code=record["exit_code"], message=record["message"], rank=record["rank"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def diagnose(ended: Ended, failure: Failure | None, *, timeout_seconds: float | None = None) -> GradwireError:
    """Return the error that says what the bad end of a run means.

    A rank's own word keeps its exit code, which the launchers turn into 1. Without one it is RunFailed, with the
    cause, the lines that show it and the log's path. The first line alone is a whole sentence.
    """
    where = f"the whole output: {ended.log}"
    if failure is not None:
        kind = _CLASSES.get(failure.exit_code, RunFailed)
        return kind(f"{failure.message}\n  said by rank {failure.rank}; {where}")
    if ended.timed_out:
        headline = f"stopped after {timeout_seconds:g} s: the time limit (--timeout)"
        return RunFailed(_with_lines(headline, ended.lines[-_SHOWN_LINES:], where))
    for find in _FINDERS:
        found = find(ended.lines)
        if found is not None:
            headline, lines = found
            return RunFailed(_with_lines(headline, lines, where))
    return RunFailed(_with_lines(_plain_end(ended.exit_code), ended.lines[-_SHOWN_LINES:], where))


def signal_name(number: int) -> str:
    """Return a signal's name, such as SIGKILL; its number in words where it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _killed_worker(lines: Sequence[str]) -> tuple[str, Sequence[str]] | None:
    for index, line in enumerate(lines):
        match = _TORCH_FAILED.search(line) or _DEEPSPEED_FAILED.search(line)
        if match is None or int(match["code"]) >= 0:
            continue
        number = -int(match["code"])
        reason = _usual_reason(number)
        before = _own_lines(lines[:index])[-_SHOWN_LINES:]
        return f"the process with local rank {match['rank']} was killed by {signal_name(number)}{reason}", before
    return None


def _usual_reason(number: int) -> str:
    known = {int(key): value for key, value in _USUAL_REASON.items()}
    return f" ({known[number]})" if number in known else ""


def _known_trouble(lines: Sequence[str]) -> tuple[str, Sequence[str]] | None:
    for pattern, advice in _KNOWN_TROUBLE:
        for line in lines:
            match = re.search(pattern, line)
            if match is None:
                continue
            port = re.search(r"port[:=]? ?(\d+)|:(\d{2,5})\b", line[match.start() :] + line[: match.start()])
            named = f": {port[1] or port[2]}" if port else ""
            return advice.format(port=named, **match.groupdict()), [line.strip()]
    return None


def _first_exception(lines: Sequence[str]) -> tuple[str, Sequence[str]] | None:
    """The first traceback that is not the launcher's own about its workers."""
    bare = [_RANK_PREFIX.sub("", line) for line in lines]
    for start, line in enumerate(bare):
        if not line.strip().endswith(_TRACEBACK):
            continue
        for end in range(start + 1, len(bare)):
            if not bare[end].startswith((" ", "\t")):
                break
        else:
            continue
        if "ChildFailedError" not in bare[end]:
            return bare[end], bare[max(start + 1, end - 4) : end]
    return None


_FINDERS: tuple[Callable[[Sequence[str]], tuple[str, Sequence[str]] | None], ...] = (
    _killed_worker,
    _known_trouble,
    _first_exception,
)


def _plain_end(exit_code: int) -> str:
    if exit_code < 0:
        return f"the launcher was killed by {signal_name(-exit_code)}{_usual_reason(-exit_code)}"
    return f"the run ended with exit code {exit_code}"


def _own_lines(lines: Sequence[str]) -> list[str]:
    """Lines that are not the launcher's log."""
    return [line for line in lines if not re.match(r"[WEI]\d{4} |\[\d{4}-\d\d-\d\d .*\] \[(INFO|WARNING)\]", line)]


def _with_lines(headline: str, lines: Sequence[str], where: str) -> str:
    shown = [f"    {line.rstrip()[:200]}" for line in lines]
    return "\n".join([headline, *shown, f"  {where}"])
