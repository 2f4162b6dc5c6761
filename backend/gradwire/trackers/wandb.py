"""Weights & Biases, offline unless WANDB_MODE says otherwise: `wandb sync FOLDER/wandb/offline-run-*` sends it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

# Before it is imported: it would send its makers what went wrong in it.
os.environ.setdefault("WANDB_ERROR_REPORTING", "false")

import wandb


class WandbTracker:
    """One run of Weights & Biases."""

    errors: tuple[type[Exception], ...] = (OSError, wandb.errors.Error)

    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, figures: Mapping[str, float], *, step: int) -> None:
        """Log a row."""
        self._run.log(dict(figures), step=step)

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


def open_tracker(folder: Path, run_name: str, settings: dict[str, Any]) -> WandbTracker:
    """Begin a run below `folder`; the project is WANDB_PROJECT or gradwire.

    Nothing leaves the machine unless WANDB_MODE says so, and what the library would find out about the machine, the
    code and the command line stays out of it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    run = wandb.init(
        dir=str(folder),
        project=os.environ.get("WANDB_PROJECT") or "gradwire",
        name=run_name,
        config=settings,
        settings=wandb.Settings(
            mode=cast("Any", os.environ.get("WANDB_MODE") or "offline"),
            silent=True,
            console="off",
            host="",
            disable_git=True,
            disable_code=True,
            x_disable_meta=True,
            x_save_requirements=False,
            # Samples the very cores that are measured.
            x_disable_stats=True,
        ),
    )
    return WandbTracker(run)
