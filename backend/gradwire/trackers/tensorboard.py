"""TensorBoard, through torch's own writer: event files below FOLDER/tensorboard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter


class TensorBoardTracker:
    """Scalars, and the settings as a table."""

    errors: tuple[type[Exception], ...] = (OSError,)

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def log(self, figures: Mapping[str, float], *, step: int) -> None:
        """Write a scalar for each figure."""
        for name, value in figures.items():
            self._writer.add_scalar(name, value, global_step=step)

    def close(self) -> None:
        """Write the rest."""
        self._writer.close()


def open_tracker(folder: Path, run_name: str, settings: dict[str, Any]) -> TensorBoardTracker:
    """Open event files for a run; see `gradwire.trackers.interface.open_trackers`."""
    writer = SummaryWriter(log_dir=str(folder / "tensorboard"))
    rows = [f"| {name} | {value} |" for name, value in settings.items()]
    writer.add_text("settings", "\n".join([f"| {run_name} | |", "|---|---|", *rows]))
    return TensorBoardTracker(writer)
