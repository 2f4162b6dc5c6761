"""The lab's raw rows: one per configuration and round, written as JSON lines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from gradwire.errors import UsageError

Mode = Literal["emulated", "real"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """A link as asked for and as measured in the same run.

    `rate_mbit` is None for loopback as it is. `congestion_control` is TCP's. `raw_bits_per_second` and
    `round_trip_seconds` are one TCP connection's;
    `latency_seconds` and `bytes_per_second` are an all-reduce's: the time of a tiny one, and gradient bytes per second
    of a large one.
    """

    hosts: int
    rate_mbit: float | None
    congestion_control: str
    raw_bits_per_second: float
    round_trip_seconds: float
    latency_seconds: float
    bytes_per_second: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """A few steps of one configuration in one round, with buckets of `bucket_cap_mb` MiB (None: torch's default).

    `step_seconds` are the slowest rank's, step by step. Bytes are what one host's interface sent and received per
    step, headers and acknowledgements included, averaged over hosts. `cpu_seconds` is the process time of rank 0 per
    step, over all its threads.
    """

    configuration: str
    bucket_cap_mb: float | None
    round: int
    step_seconds: list[float]
    sent_bytes: float
    received_bytes: float
    cpu_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What one launch's workers report: the all-reduce's speed, and the samples in the order they were taken."""

    latency_seconds: float
    bytes_per_second: float
    samples: list[Sample]


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One sample and where it was taken."""

    link: Link
    mode: Mode
    sample: Sample


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Append `rows` to a file of JSON lines."""
    encoder = msgspec.json.Encoder()
    with path.open("ab") as file:
        for row in rows:
            file.write(encoder.encode(row) + b"\n")


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file that `write_rows` wrote; raises UsageError, with the line, where it did not."""
    decoder = msgspec.json.Decoder(Row)
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(decoder.decode(line))
        except msgspec.DecodeError as error:
            raise UsageError(f"{path}:{number}: not a row of the lab: {error}") from error
    return rows
