"""Shows on stderr what a comparison runs now and what is left: a live table, or plain lines without a terminal."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from gradwire.cli.cells import Attempt, Result
from gradwire.cli.output import note, screen_width

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

# The whole reason stands below the table at the end.
_LONGEST_REASON = 120
_STEP_LINE = re.compile(rb"^(step \d+/\d+  loss [\d.naif]+)", re.MULTILINE)


class Progress(Protocol):
    """What the display is told."""

    def begin(self, attempt: Attempt, folder: Path) -> None:
        """A run starts; its log will be in `folder`."""

    def end(self, result: Result) -> None:
        """The run that began ended."""


def make_progress(title: str, attempts: Sequence[Attempt]) -> AbstractContextManager[Progress]:
    """Return the display that fits stderr: live on a terminal, lines elsewhere."""
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        return _LiveTable(title, attempts)
    return _Lines(title, attempts)


def outcome_text(result: Result) -> str:
    """Return what came of a run, on one line."""
    from gradwire.compare.format import rate

    if result.measurement is None:
        reason = result.run.reason or ""
        return f"failed: {reason if len(reason) <= _LONGEST_REASON else reason[: _LONGEST_REASON - 3] + '...'}"
    return f"{rate(result.measurement.throughput.tokens_per_second)} tokens/s"


def last_step(folder: Path) -> str | None:
    """Return the last step that a run's log speaks of; None before the first."""
    from gradwire.launch.job import LOG_FILE

    try:
        with (folder / LOG_FILE).open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 4096))
            tail = log.read()
    except OSError:
        return None
    found = _STEP_LINE.findall(tail)
    return found[-1].decode() if found else None


class _Lines:
    def __init__(self, title: str, attempts: Sequence[Attempt]) -> None:
        self._title, self._count, self._made = title, len(attempts), 0

    def __enter__(self) -> Self:
        note(self._title)
        return self

    def __exit__(self, *_exception: object) -> None:
        return None

    def begin(self, attempt: Attempt, folder: Path) -> None:
        self._made += 1
        note(f"[{self._made}/{self._count}] {_name(attempt)} ...")

    def end(self, result: Result) -> None:
        note(f"[{self._made}/{self._count}] {_name(result.attempt)}: {outcome_text(result)} ({result.seconds:.0f} s)")


class _LiveTable:
    def __init__(self, title: str, attempts: Sequence[Attempt]) -> None:
        self._title, self._attempts = title, attempts
        self._results: list[Result] = []
        self._current: tuple[Attempt, Path, float] | None = None
        self._started = time.monotonic()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True, width=screen_width(), highlight=False, markup=False)
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=2)
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._current = None
        if self._live is not None:
            self._live.stop()

    def begin(self, attempt: Attempt, folder: Path) -> None:
        self._current = (attempt, folder, time.monotonic())

    def end(self, result: Result) -> None:
        self._results.append(result)
        self._current = None

    def _render(self) -> RenderableType:
        from rich.table import Table

        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True, justify="right")
        grid.add_column(overflow="ellipsis", no_wrap=True)
        grid.add_column(no_wrap=True, justify="right")
        for backend, num_gpus in dict.fromkeys((attempt.backend, attempt.num_gpus) for attempt in self._attempts):
            grid.add_row(f"  {backend}", str(num_gpus), *self._cell(backend, num_gpus))
        table = Table.grid()
        table.add_row(self._title)
        table.add_row(grid)
        table.add_row(self._summary())
        return table

    def _cell(self, backend: str, num_gpus: int) -> tuple[str, str]:
        """What a cell's line says: its state, and its seconds."""
        made = [r for r in self._results if (r.attempt.backend, r.attempt.num_gpus) == (backend, num_gpus)]
        if self._current is not None:
            attempt, folder, began = self._current
            if (attempt.backend, attempt.num_gpus) == (backend, num_gpus):
                again = f"repeat {attempt.repeat}, " if attempt.repeat else ""
                return f"running: {again}{last_step(folder) or 'starting'}", f"{time.monotonic() - began:.0f} s"
        if made:
            return outcome_text(made[-1]), f"{made[-1].seconds:.0f} s"
        return "waiting", ""

    def _summary(self) -> str:
        elapsed = time.monotonic() - self._started
        made, count = len(self._results), len(self._attempts)
        left = f", about {_clock(elapsed / made * (count - made))} left" if 0 < made < count else ""
        return f"{made} of {count} runs made, {_clock(elapsed)} elapsed{left}"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _name(attempt: Attempt) -> str:
    again = f", repeat {attempt.repeat}" if attempt.repeat else ""
    return f"{attempt.backend} on {attempt.num_gpus}{again}"
