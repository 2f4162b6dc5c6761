"""The one interface to all trackers: open some by name, log figures to them, close them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from gradwire.errors import EnvironmentNotFit, UsageError

PACKAGES = {
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "mlflow": "mlflow",
    "trackio": "trackio",
    "prometheus": "prometheus_client",
}
"""Each tracker's name and the package to import; the module gradwire.trackers.NAME has `open_tracker`."""


class Tracker(Protocol):
    """One tracker that is open; `errors` are what its library raises when it cannot go on, OSError among them."""

    errors: tuple[type[Exception], ...]

    def log(self, figures: Mapping[str, float], *, step: int) -> None:
        """Log the figures of a step."""

    def close(self) -> None:
        """Write what is still held back, and end."""


def open_trackers(
    names: Sequence[str],
    *,
    folder: Path,
    run_name: str,
    settings: Mapping[str, Any] | None = None,
    say: Callable[[str], object] = sys.stderr.write,
) -> Trackers:
    """Open the trackers `names` for one run; what they keep on disk goes below `folder`.

    `settings` are what the run was made with, as the trackers' tables show them. Open them in one process of a job.
    Raises UsageError for a name that there is not, EnvironmentNotFit where a package is missing.
    """
    check_trackers(names)
    opened: dict[str, Tracker] = {}
    for name in dict.fromkeys(names):
        module = importlib.import_module(f"gradwire.trackers.{name}")
        opened[name] = module.open_tracker(folder, run_name, dict(settings or {}))
    return Trackers(opened, say=say)


def check_trackers(names: Sequence[str]) -> None:
    """Raise UsageError for names of no tracker, EnvironmentNotFit where a tracker's package is not installed."""
    unknown = [name for name in names if name not in PACKAGES]
    if unknown:
        raise UsageError(f"no such tracker: {', '.join(unknown)}; there are {', '.join(PACKAGES)}")
    missing = [PACKAGES[name] for name in names if importlib.util.find_spec(PACKAGES[name]) is None]
    if missing:
        raise EnvironmentNotFit(
            f"not installed: {', '.join(missing)}; `pip install 'gradwire[trackers]'` brings all but trackio, "
            "`pip install 'gradwire[trackio]'` that"
        )


class Trackers:
    """Several trackers as one; use it as a context.

    One that fails is dropped, and that is said once: a dashboard that is full must not end a training run.
    """

    def __init__(self, opened: Mapping[str, Tracker], *, say: Callable[[str], object]) -> None:
        self._opened = dict(opened)
        self._say = say

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """Log the figures of a step to all."""
        for name, tracker in list(self._opened.items()):
            try:
                tracker.log(figures, step=step)
            except tracker.errors as error:
                del self._opened[name]
                self._say(f"{name} gets no more figures: {error}\n")

    def close(self) -> None:
        """End all of them."""
        for name, tracker in self._opened.items():
            try:
                tracker.close()
            except tracker.errors as error:
                self._say(f"{name} did not end well: {error}\n")
        self._opened.clear()
