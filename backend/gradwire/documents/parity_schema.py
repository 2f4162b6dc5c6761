# Generated from the JSON Schemas by `make documents`; never edited.

from __future__ import annotations

from msgspec import Struct
from typing import Literal
from . import plan_schema


class Tolerances(Struct, frozen=True, kw_only=True):
    """Relative: the difference over the larger of the two values; for learning rates, over the run's largest one. What a step is taken over must be equal."""

    loss: float
    """Of a step's loss."""
    gradient_norm: float
    """Of a step's gradient norm."""
    learning_rate: float
    """Of a step's learning rate."""


class ParityRun(Struct, frozen=True, kw_only=True):
    """One backend's run."""

    backend: Literal["native", "accelerate", "deepspeed", "trainer"]
    """Backend that trained."""
    status: Literal["ok", "failed", "left-out"]
    """ok: measured; failed: it was started and ended badly; left-out: it was not asked for by name, and cannot express the recipe or run here."""
    reason: str | None
    """Why there is no measurement; null where there is one."""
    folder: str | None
    """The run's folder, relative to this file; null where nothing was written."""
    versions: dict[str, str | None]
    """Package name to version, as the measurement says; empty without one."""
    is_lossy: bool = False
    """Whether the nearest values stood in for what this backend cannot express: it then trained another recipe."""


class Difference(Struct, frozen=True, kw_only=True):
    """One value beyond its tolerance."""

    quantity: Literal["sequences", "labels", "text", "learning_rate", "loss", "gradient_norm"]
    """Name of the quantity."""
    step: int
    """Number of the optimizer step; the first one is 1."""
    reference: float | None
    """The reference's value; null where it has none at that step."""
    found: float | None
    """The compared run's value; null where it has none at that step."""
    relative_difference: float | None
    """As the tolerance is; null where a value is missing."""
    tolerance: float
    """What was allowed."""


class Quantity(Struct, frozen=True, kw_only=True):
    """One series of values, one per step."""

    name: Literal["sequences", "labels", "text", "learning_rate", "loss", "gradient_norm"]
    """sequences, labels and text: what a step was taken over."""
    is_same: bool | None
    """Whether every step's value is within the tolerance; null where a run did not record it."""
    largest_difference: float | None
    """Largest relative difference over the steps; null where none could be computed."""
    first_difference: Difference | None
    """The first value beyond the tolerance; null where there is none."""


class Pairing(Struct, frozen=True, kw_only=True):
    """One run held against the reference's, step by step."""

    backend: Literal["native", "accelerate", "deepspeed", "trainer"]
    """Backend of the run that is compared."""
    is_same: bool
    """Whether every value is within its tolerance."""
    first_difference: Difference | None
    """The earliest value beyond its tolerance, in the order of cause within a step: what it was taken over, learning rate, loss, gradient norm; null where there is none."""
    points_to: str | None
    """What a first difference at that place usually comes from; null without one."""
    quantities: list[Quantity]
    """What was compared, in the order of cause."""


class Parity(Struct, frozen=True, kw_only=True):
    """One recipe trained on the same text by several backends, and where the runs first differ; written by `gradwire parity`."""

    format_version: Literal[1]
    """Version of this document's format."""
    recipe_name: str
    """The preset's name, or the recipe file's name without its suffix."""
    recipe_sha256: str
    """The plan's recipe_sha256 of the recipe that was asked for, before its run was cut to `steps`."""
    world: plan_schema.World
    """The processes of each run."""
    steps: int
    """Optimizer steps of each run."""
    reference: Literal["native", "accelerate", "deepspeed", "trainer"]
    """Backend that the others are held against."""
    tolerances: Tolerances
    """How far apart two values may be and still count as the same."""
    runs: list[ParityRun]
    """Each backend, in the order in which they ran."""
    comparisons: list[Pairing]
    """Each run but the reference's, held against it; empty where the reference has no measurement."""
    verdict: Literal["same", "differs", "incomplete"]
    """same: every value of every run is within its tolerance; differs: one is not; incomplete: none differs, but a backend that was asked for left no measurement."""
