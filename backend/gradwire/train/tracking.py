"""Hands each finished step on to the trackers that the recipe names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradwire.documents.plan_schema import Plan
from gradwire.documents.step_schema import Step
from gradwire.measure.matmul_peak import RunPeak
from gradwire.measure.steps import StepWriter
from gradwire.measure.utilization import utilization_of
from gradwire.trackers.interface import Trackers, open_trackers
from gradwire.trackers.names import step_figures


class TrackedSteps:
    """Writes finished steps to `writer` and, with the step's MFU where it is known, to `trackers`."""

    def __init__(
        self, plan: Plan, writer: StepWriter, trackers: Trackers, *, device_name: str, measured_peak: RunPeak | None
    ) -> None:
        self._plan = plan
        self._writer = writer
        self._trackers = trackers
        self._device_name = device_name
        self._measured_peak = measured_peak

    def write(self, step: Step) -> None:
        """Write one finished step; it is on disk before a tracker has it."""
        self._writer.write(step)
        world_size = self._plan.world.world_size
        per_rank = step.tokens / step.seconds / world_size if step.seconds > 0 else None
        used = utilization_of(self._plan, self._device_name, per_rank, measured_peak=self._measured_peak)
        self._trackers.log(step_figures(step, world_size=world_size, mfu=used.mfu), step.step)


def open_run_trackers(plan: Plan, folder: Path) -> Trackers:
    """Open the trackers of `plan`'s recipe for a run in `folder`."""
    return open_trackers(
        plan.recipe.measurement.trackers,
        folder=folder,
        run_name=f"{plan.recipe_name.replace('/', '-')}-{plan.backend}-{plan.world.world_size}",
        settings=_settings(plan),
    )


def _settings(plan: Plan) -> Mapping[str, Any]:
    training = plan.recipe.training
    return {
        "recipe": plan.recipe_name,
        "recipe_sha256": plan.recipe_sha256,
        "backend": plan.backend,
        "world_size": plan.world.world_size,
        "strategy": plan.recipe.parallelism.data.strategy,
        "precision": training.precision,
        "optimizer": training.optimizer,
        "learning_rate": training.learning_rate,
        "global_batch_size": plan.batch.global_batch_size,
        "compression": plan.recipe.communication.compression.method,
    }
