"""Trackio, which keeps its runs below TRACKIO_DIR, or else below FOLDER/trackio."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class TrackioTracker:
    """One run of Trackio."""

    errors: tuple[type[Exception], ...] = (OSError,)

    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, figures: Mapping[str, float], *, step: int) -> None:
        """Log a row."""
        self._run.log(dict(figures), step=step)

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


def open_tracker(folder: Path, run_name: str, settings: dict[str, Any]) -> TrackioTracker:
    """Begin a run in the project TRACKIO_PROJECT or gradwire."""
    # Read when trackio is first imported.
    os.environ.setdefault("TRACKIO_DIR", str((folder / "trackio").absolute()))
    import trackio

    project = os.environ.get("TRACKIO_PROJECT") or "gradwire"
    run = trackio.init(
        project=project,
        name=run_name,
        config=settings,
        embed=False,
        # Its threads would ask the machine while it is measured.
        auto_log_gpu=False,
        auto_log_cpu=False,
    )
    return TrackioTracker(run)
