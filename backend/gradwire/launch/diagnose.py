"""Says what a bad end means: from the word a rank left, the exit code, and the launcher's last lines."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gradwire.errors import EnvironmentNotFit, GradwireError, RunFailed, ThresholdNotMet, UsageError
from gradwire.launch.process import Ended

_SHOWN_LINES = 8
_CLASSES: dict[int, type[GradwireError]] = {
    kind.exit_code: kind for kind in (RunFailed, UsageError, EnvironmentNotFit, ThresholdNotMet)
}
_RANK_PREFIX = re.compile(r"^\[rank\d+\]: ?")
_TRACEBACK = "Traceback (most recent call last):"
# torchrun and accelerate launch: the first worker seen to fail, then a table of all.
_TORCH_FAILED = re.compile(r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<rank>\d+)")
_TORCH_RANK = re.compile(r"  rank      : \d+ \(local_rank: (?P<rank>\d+)\)")
_TORCH_CODE = re.compile(r"  exitcode  : (?P<code>-?\d+) \(pid: \d+\)")
_DEEPSPEED_FAILED = re.compile(r"--local_rank=(?P<rank>\d+)'.* exits with return code = (?P<code>-?\d+)")
_LAUNCHER_LINE = re.compile(r"[WEI]\d{4} |\[\d{4}-\d\d-\d\d .*\] \[(?:INFO|WARNING|ERROR)\]")
_ECHOES = (signal.SIGTERM, signal.SIGABRT)
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
    killed = _killed_worker(ended.lines)
    if killed is not None and (failure is None or (killed.is_cause and failure.exit_code == RunFailed.exit_code)):
        before = _own_lines(ended.lines[: killed.line])[-_SHOWN_LINES:]
        return RunFailed(_with_lines(killed.headline, before, where))
    if failure is not None:
        kind = _CLASSES.get(failure.exit_code, RunFailed)
        return kind(f"{failure.message}\n  said by rank {failure.rank}; {where}")
    if ended.timed_out:
        headline = f"stopped after {timeout_seconds:g} s: the time limit (--timeout)"
        return RunFailed(_with_lines(headline, _own_lines(ended.lines)[-_SHOWN_LINES:], where))
    found = _known_trouble(ended.lines) or _first_exception(ended.lines)
    headline, lines = found or (_plain_end(ended.exit_code), _own_lines(ended.lines)[-_SHOWN_LINES:])
    return RunFailed(_with_lines(headline, lines, where))


def signal_name(number: int) -> str:
    """Return a signal's name, such as SIGKILL; its number in words where it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Killed:
    """A worker that a signal ended; `line` is the first line of the launcher's account of it.

    `is_cause` says that no other rank's failure brings this about: launchers end the other workers with SIGTERM, and a
    broken connection can end one with SIGABRT (the two are `_ECHOES`).
    """

    headline: str
    line: int
    is_cause: bool


def _killed_worker(lines: Sequence[str]) -> _Killed | None:
    """Return the worker whose death explains the others', as far as the launcher says."""
    found = []
    local_rank = "?"
    for index, line in enumerate(lines):
        if match := _TORCH_RANK.match(line):
            local_rank = match["rank"]
        elif match := _TORCH_CODE.match(line):
            found.append((local_rank, int(match["code"]), index))
        elif match := _TORCH_FAILED.search(line) or _DEEPSPEED_FAILED.search(line):
            found.append((match["rank"], int(match["code"]), index))
    causes = [(rank, -code) for rank, code, _ in found if code < 0 and -code not in _ECHOES]
    # Without such a one, an echo counts only where it is the first failure that the launcher saw.
    first = [(rank, -code) for rank, code, _ in found[:1] if code < 0]
    for rank, number in causes or first:
        return _Killed(
            headline=f"the process with local rank {rank} was killed by {signal_name(number)}{_usual_reason(number)}",
            line=found[0][2],
            is_cause=bool(causes),
        )
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


def _plain_end(exit_code: int) -> str:
    if exit_code < 0:
        return f"the launcher was killed by {signal_name(-exit_code)}{_usual_reason(-exit_code)}"
    return f"the run ended with exit code {exit_code}"


def _own_lines(lines: Sequence[str]) -> list[str]:
    """Lines that are not the launcher's log."""
    return [
        line for line in lines if not re.match(r"[WEI]\d{4} |\[\d{4}-\d\d-\d\d .*\] \[(INFO|WARNING|ERROR)\]", line)
    ]


def _with_lines(headline: str, lines: Sequence[str], where: str) -> str:
    shown = [f"    {line.rstrip()[:200]}" for line in lines]
    return "\n".join([headline, *shown, f"  {where}"])
