# Generated from the JSON Schemas by `make documents`; never edited.

from __future__ import annotations

from typing import Literal
from msgspec import Struct
from . import measurement_schema


class Run(Struct, frozen=True, kw_only=True):
    """One launch of one cell."""

    backend: Literal["native", "accelerate", "deepspeed", "trainer"]
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
    is_outlier: bool
    """Whether its throughput is far from its cell's other repeats: more than 3.5 robust standard deviations (1.4826 x the median absolute deviation of the logarithms) and more than 5 % from their median, three repeats at least. An outlier stays in every figure."""


class Baseline(Struct, frozen=True, kw_only=True):
    """What the efficiencies are against."""

    kind: Literal["smallest-measured", "given"]
    """smallest-measured: each backend's own smallest size; given: a throughput from elsewhere, taken as exact."""
    num_gpus: int | None
    """Size of the given baseline; null otherwise."""
    throughput: float | None
    """The given baseline, tokens per second over all its ranks (sequences where no tokens were counted); null otherwise."""


class Interval(Struct, frozen=True, kw_only=True):
    """Where the efficiency lies with a stated confidence: Student's t on the logarithms of throughput ratios."""

    low: float
    """Lower end, a fraction."""
    high: float
    """Upper end, a fraction."""
    confidence: float
    """Share of such intervals that hold the true value."""
    method: Literal["paired-t", "welch-t", "one-sample-t"]
    """paired-t: repeats of one round are compared with each other; welch-t: repeats are not of one round; one-sample-t: against a given number."""


class Remedy(Struct, frozen=True, kw_only=True):
    """One thing to try."""

    action: str
    """What to change."""
    predicted_speedup: float | None
    """Throughput after over throughput before, at most, by the time split; null where it does not say."""


class Prediction(Struct, frozen=True, kw_only=True):
    """What a fitted law says of a size that was not measured."""

    num_gpus: int
    """Ranks."""
    throughput: float
    """Tokens per second over all ranks (sequences where no tokens were counted)."""
    low: float
    """Lower end of the 95 % prediction interval, if the law holds."""
    high: float | None
    """Upper end; null where it is not bounded."""
    scaling_efficiency: float
    """Against the measured baseline, a fraction."""
    grade: Literal["good", "acceptable", "poor", "undecided"]
    """That both ends of the interval share; undecided where they do not."""


class Cause(Struct, frozen=True, kw_only=True):
    """One thing that takes time, with the evidence and what to try."""

    kind: Literal[
        "input-bound",
        "communication-bound",
        "pipeline-bubble",
        "straggler",
        "batch-too-small",
        "slow-compute",
        "slow-optimizer",
        "crowded-machine",
        "unaccounted",
        "not-recorded",
    ]
    """What it is."""
    seconds: float | None
    """Seconds per step that it takes, above the baseline's where there is one to compare with; null where no time split was recorded."""
    share: float | None
    """seconds over the mean step, a fraction; null where that is not known."""
    evidence: str
    """The numbers that it rests on, in words."""
    remedies: list[Remedy]
    """What to try, in this order."""


class Fit(Struct, frozen=True, kw_only=True):
    """A scaling law fitted to one backend's runs, or why it was not."""

    backend: Literal["native", "accelerate", "deepspeed", "trainer"]
    """Backend whose runs were fitted."""
    law: Literal["amdahl", "gustafson", "latency-bandwidth"]
    """amdahl: throughput X1 / (s + (1-s)/n); gustafson: X1 (s + (1-s) n); latency-bandwidth: a step takes compute + 2(n-1) latency + 2(n-1)/n x bytes / bandwidth."""
    suits: bool
    """Whether the law speaks of this kind of scaling: Amdahl's of strong, Gustafson's of weak, the third of both."""
    refused: str | None
    """Why it was not fitted; null when it was."""
    points: int
    """Runs it was fitted to."""
    relative_error: float | None
    """Residual standard error as a fraction of the throughput; null when refused."""
    parameters: dict[str, float]
    """Fitted fractions by name: serial_share, or the shares of a step at the largest measured size."""
    predictions: list[Prediction]
    """Twice and four times the largest measured size."""


class Cell(Struct, frozen=True, kw_only=True):
    """One backend at one number of GPUs; medians over its repeats."""

    backend: Literal["native", "accelerate", "deepspeed", "trainer"]
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
    """Size that the efficiency is against: the smallest measured of this backend, or that of the given baseline; null without one. Above 1, what one would do is extrapolated."""
    speedup: float | None
    """Throughput over the baseline's throughput."""
    scaling_efficiency: float | None
    """speedup x baseline_num_gpus / num_gpus, a fraction."""
    interval: Interval | None
    """Confidence interval of scaling_efficiency; null for the baseline itself and where the cell or its baseline ran once."""
    grade: Literal["good", "acceptable", "poor", "undecided"] | None
    """good: above 0.85; acceptable: 0.70 to 0.85; poor: below 0.70; undecided: the interval straddles 0.85 or 0.70, or the machine is too noisy; null for the baseline itself and without an efficiency."""
    grade_basis: Literal["interval", "one-run"] | None
    """interval: both ends have the grade; one-run: there is no interval, and the grade is that of one ratio; null without a grade."""
    noise: str | None
    """Why the machine is too noisy for a verdict: more processes than cores, or an undecided interval wider than 0.15, the whole acceptable band; null where it is not."""
    time_split: measurement_schema.TimeSplit | None
    """Mean over the repeats that recorded it; null where none did."""
    causes: list[Cause]
    """What takes the time that better scaling would save, the largest first."""
    final_loss: float | None
    """Loss of the last step of the first finished repeat, nats per token."""
    losses: list[float | None]
    """Loss per step of the first finished repeat."""
    peak_memory_bytes: int | None
    """Largest over ranks and repeats: allocated on the device, or resident in main memory on cpu."""
    mfu: float | None
    """Median over repeats, a fraction; null where the device's peak is not known."""
    workload: measurement_schema.Workload | None
    """What its first finished repeat trained; null without one."""


class Comparison(Struct, frozen=True, kw_only=True):
    """One recipe on several backends and sizes: throughput, speed-up, scaling efficiency and grade."""

    format_version: Literal[1]
    """Version of this document's format."""
    recipe_name: str
    """The preset's name, or the recipe file's name without its suffix."""
    recipe_sha256: str
    """The plan's recipe_sha256."""
    scaling: Literal["weak", "strong"]
    """weak: the batch per rank is fixed as ranks are added; strong: the global batch is fixed."""
    baseline: Baseline
    """What the efficiencies are against."""
    machines: list[str]
    """Fingerprints of the machines that the runs were made on, sorted."""
    runs: list[Run]
    """Every run in the order it was made."""
    cells: list[Cell]
    """One entry per backend and number of GPUs."""
    fits: list[Fit]
    """Scaling laws fitted to each backend's runs, the suited ones first."""
    notes: list[str]
    """What a reader should know before quoting the numbers."""
