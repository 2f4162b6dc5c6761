# Generated from the JSON Schemas by `make documents`; never edited.

from __future__ import annotations

from typing import Literal
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One launch of one cell."""

    backend: Literal["native", "accelerate", "deepspeed"]
    """Backend that trained."""
    num_gpus: int
    """Ranks in the run."""
    repeat: int
    """Which repeat of the cell, from 0."""
    status: Literal["ok", "failed"]
    """ok, or failed (see the reason)."""
    reason: str | None
    """Why it failed; null otherwise."""
    folder: str
    """The run's files, relative to this document."""
    samples_per_second: float | None
    """Sequences per second over all ranks; null when the run failed."""
    tokens_per_second: float | None
    """Tokens per second over all ranks; null when the run failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One backend at one number of GPUs; medians over its repeats."""

    backend: Literal["native", "accelerate", "deepspeed"]
    """Backend that trained."""
    num_gpus: int
    """Ranks in each run."""
    status: Literal["ok", "failed", "not-comparable"]
    """ok; failed: no repeat finished; not-comparable: measured, but unlike its baseline."""
    reason: str | None
    """Why it failed, or why no efficiency was computed; null otherwise."""
    repeats: int
    """Repeats that finished."""
    samples_per_second: float | None
    """Median over repeats."""
    tokens_per_second: float | None
    """Median over repeats."""
    tokens_per_second_minimum: float | None
    """Slowest repeat."""
    tokens_per_second_maximum: float | None
    """Fastest repeat."""
    step_seconds_median: float | None
    """Median over repeats of the median step."""
    step_seconds_p95: float | None
    """Median over repeats of the 95th percentile step."""
    baseline_num_gpus: int | None
    """Size of the run that the efficiency is against: the smallest measured of this backend; null without one."""
    speedup: float | None
    """Throughput over the baseline's throughput."""
    scaling_efficiency: float | None
    """speedup x baseline_num_gpus / num_gpus, a fraction."""
    grade: Literal["good", "acceptable", "poor"] | None
    """good: above 0.85; acceptable: 0.70 to 0.85; poor: below 0.70; null for the baseline itself and without an efficiency."""
    final_loss: float | None
    """Loss of the last step of the first finished repeat, nats per token."""
    losses: list[float | None]
    """Loss per step of the first finished repeat."""
    peak_memory_bytes: int | None
    """Largest over ranks and repeats: allocated on the device, or resident in main memory on cpu."""
    mfu: float | None
    """Median over repeats, a fraction; null where the device's peak is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """One recipe on several backends and sizes: throughput, speed-up, scaling efficiency and grade."""

    format_version: Literal[1]
    """Version of this document's format."""
    recipe_name: str
    """The preset's name, or the recipe file's name without its suffix."""
    recipe_sha256: str
    """The plan's recipe_sha256."""
    scaling: Literal["weak", "strong"]
    """weak: the batch per rank is fixed as ranks are added; strong: the global batch is fixed."""
    runs: list[Run]
    """Every run in the order it was made."""
    cells: list[Cell]
    """One entry per backend and number of GPUs."""
    notes: list[str]
    """What a reader should know before quoting the numbers."""
