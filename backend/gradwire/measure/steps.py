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
    """Appends finished steps to a file that it empties at first; use it as a context.

    Each line is one call of the operating system, which keeps it from then on whatever becomes of this process; a
    machine that loses power can lose the last ones. Raises UsageError where the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        except OSError as error:
            raise _cannot_write(path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
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

    What follows the last end of a line was never finished and is left out. Raises UsageError where the file cannot be
    read, or a finished line is no step or not the next one.
    """
    file = path / STEPS_FILE if path.is_dir() else path
    try:
        content = read_regular(file, max_bytes=_LARGEST_BYTES)
    except OSError as error:
        raise UsageError(f"{file}: cannot be read as steps: {error.strerror or error}") from error
    if len(content) > _LARGEST_BYTES:
        raise UsageError(f"{file}: larger than {_LARGEST_BYTES // 2**20} MiB, which no run's steps are")
    *lines, rest = content.split(b"\n")
    steps = tuple(_step(line, number, file) for number, line in enumerate(lines, start=1))
    return StepLog(steps=steps, is_torn=bool(rest))


def _step(line: bytes, number: int, file: Path) -> Step:
    try:
        step = msgspec.json.decode(line, type=Step)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{file}:{number}: not a step: {error}") from error
    if step.step != number:
        raise UsageError(f"{file}:{number}: step {step.step} where step {number} was expected; a line is missing")
    return step


def _cannot_write(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{path}: cannot be written: {error.strerror or error}")
