"""MLflow: the server of MLFLOW_TRACKING_URI, or else files below FOLDER/mlruns."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Before it is imported: it would tell its makers that it was.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

import mlflow
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException

_EXPERIMENT = "gradwire"


class MlflowTracker:
    """One run of MLflow."""

    errors: tuple[type[Exception], ...] = (OSError, MlflowException)

    def __init__(self, client: Any, run_id: str) -> None:
        self._client = client
        self._run_id = run_id

    def log(self, figures: Mapping[str, float], *, step: int) -> None:
        """Log a metric for each figure, all at once."""
        now = int(time.time() * 1000)
        self._client.log_batch(
            self._run_id, metrics=[Metric(name, value, now, step) for name, value in figures.items()]
        )

    def close(self) -> None:
        """End the run."""
        self._client.set_terminated(self._run_id)


def open_tracker(folder: Path, run_name: str, settings: dict[str, Any]) -> MlflowTracker:
    """Begin a run in the experiment MLFLOW_EXPERIMENT_NAME or gradwire."""
    address = os.environ.get("MLFLOW_TRACKING_URI")
    if not address:
        # Files need no database; MLflow 3 wants to be told so.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        address = (folder / "mlruns").absolute().as_uri()
    client = mlflow.MlflowClient(address)
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or _EXPERIMENT
    found = client.get_experiment_by_name(name)
    run = client.create_run(found.experiment_id if found else client.create_experiment(name), run_name=run_name)
    params = [Param(key, str(value)) for key, value in settings.items()]
    client.log_batch(run.info.run_id, params=params)
    return MlflowTracker(client, run.info.run_id)
