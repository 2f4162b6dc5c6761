"""Reads and writes steps.jsonl: one line for each finished step, whole whenever the writer is killed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from gradwire.documents.step_schema import Step
from gradwire.errors import UsageError
from gradwire.reading import read_regular

STEPS_FILE = "steps.jsonl"

# A step takes about 300 bytes, so this is a run of more than a million steps.
_LARGEST_BYTES = 512 * 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class StepLog:
    """The finished steps in order. `is_torn`: a line after them was begun and not finished, which is left out."""

    steps: tuple[Step, ...]
    is_torn: bool


class StepWriter:
    """Appends finished steps to a file; use it as a context.

    The file is emptied at first. Where a run continues `after` a step, the finished lines up to that step stay, and
    those after it, which are trained again, go; without a line of that step the file begins with the next one.

    Each line is one call of the operating system, which keeps it from then on whatever becomes of this process; a
    machine that loses power can lose the last ones. Raises UsageError where the file cannot be written.
    """

    def __init__(self, path: Path, *, after: int = 0) -> None:
        self._path = path
        kept = _kept_bytes(path, after) if after else 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            if os.fstat(self._descriptor).st_size:
                os.ftruncate(self._descriptor, kept)
        except OSError as error:
            raise _cannot_write(path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Write no further."""
        os.close(self._descriptor)

    def write(self, step: Step) -> None:
        """Append one finished step."""
        line = msgspec.json.encode(step) + b"\n"
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
        except OSError as error:
            raise _cannot_write(self._path, error) from error


def read_steps(path: Path) -> StepLog:
    """Return the finished steps in `path`, steps.jsonl or the folder of a run.

    What follows the last end of a line was never finished and is left out. The first one may have any number: a run
    that continued elsewhere begins there. Raises UsageError where the file cannot be read, or a finished line is no
    step or not the one after the line before.
    """
    file = path / STEPS_FILE if path.is_dir() else path
    try:
        content = read_regular(file, max_bytes=_LARGEST_BYTES)
    except OSError as error:
        raise UsageError(f"{file}: cannot be read as steps: {error.strerror or error}") from error
    if len(content) > _LARGEST_BYTES:
        raise UsageError(f"{file}: larger than {_LARGEST_BYTES // 2**20} MiB, which no run's steps are")
    *lines, rest = content.split(b"\n")
    steps: list[Step] = []
    for number, line in enumerate(lines, start=1):
        step = _step(line, number, file)
        if steps and step.step != steps[-1].step + 1:
            expected = steps[-1].step + 1
            raise UsageError(f"{file}:{number}: step {step.step} where step {expected} was expected; a line is missing")
        steps.append(step)
    return StepLog(steps=tuple(steps), is_torn=bool(rest))


def _step(line: bytes, number: int, file: Path) -> Step:
    try:
        return msgspec.json.decode(line, type=Step)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{file}:{number}: not a step: {error}") from error


def _kept_bytes(path: Path, after: int) -> int:
    """Return how many bytes of `path` hold the lines up to step `after`; 0 where they do not lead there."""
    try:
        log = read_steps(path)
        content = read_regular(path, max_bytes=_LARGEST_BYTES)
    except UsageError:
        # No file, or of something else: it begins anew.
        return 0
    if not log.steps or not log.steps[0].step <= after <= log.steps[-1].step:
        return 0
    lines = content.split(b"\n")[: after - log.steps[0].step + 1]
    return sum(len(line) + 1 for line in lines)


def _cannot_write(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{path}: cannot be written: {error.strerror or error}")
