"""What the lab hands to its workers: which configurations, how often, on what model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.netlab.configurations import Configuration
from benchmarks.netlab.rows import Mode

HOSTS_VARIABLE = "NETLAB_INTERFACE"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """How long the measuring takes.

    Each configuration is visited `rounds` times, in turn, for as many steps as fit in `visit_seconds` but at least
    `least_steps` and at most `most_steps`; `warmup_steps` come before, once, unmeasured.
    """

    rounds: int = 5
    visit_seconds: float = 1.5
    least_steps: int = 2
    most_steps: int = 6
    warmup_steps: int = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One launch: every configuration in turn over one link. `out` gets one JSON document from rank 0."""

    configurations: tuple[Configuration, ...]
    mode: Mode
    compute_seconds: float
    pace: Pace
    probe_bytes: int
    out: str


def read_job(path: Path) -> Job:
    """Return the job that a file of JSON holds."""
    return msgspec.json.decode(path.read_bytes(), type=Job)
