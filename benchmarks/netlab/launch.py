"""Launches the workers on their hosts and brings back what they report, with the link measured beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.netlab.configurations import Configuration
from benchmarks.netlab.job import Job, Pace
from benchmarks.netlab.link_speed import measure_link
from benchmarks.netlab.network import Host, linked_hosts, loopback_hosts
from benchmarks.netlab.rows import Link, Measured, Mode, Row
from benchmarks.netlab.starter import starter_words
from gradwire.errors import RunFailed
from gradwire.launch.process import run

REPOSITORY = Path(__file__).resolve().parents[2]
_LOOPBACK_PROBE_MBIT = 10_000.0
_LARGEST_PROBE_BYTES = 64_000_000
_SHOWN_LINES = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """Where workers run: `hosts` hosts on links of `rate_mbit` Mb/s, or on loopback as it is where that is None."""

    hosts: int
    rate_mbit: float | None
    congestion_control: str

    @property
    def name(self) -> str:
        return f"{self.hosts}x{'loopback' if self.rate_mbit is None else f'{self.rate_mbit:g}mbit'}"


@contextmanager
def hosts_of(site: Site) -> Iterator[tuple[Host, ...]]:
    """Yield the hosts, which are gone afterwards."""
    if site.rate_mbit is None:
        yield loopback_hosts(site.hosts)
        return
    with linked_hosts(site.hosts, site.rate_mbit, congestion_control=site.congestion_control) as hosts:
        yield hosts


def measure(
    site: Site,
    *,
    mode: Mode,
    configurations: tuple[Configuration, ...],
    compute_seconds: float,
    pace: Pace,
    folder: Path,
    timeout_seconds: float,
) -> list[Row]:
    """Return one row per visit of every configuration at `site`; the log and raw documents go to `folder`.

    Raises RunFailed with the end of the log where a worker fails or the time runs out.
    """
    name = f"{site.name}-{mode}"
    # A second of the link for the raw connection, half of one for the all-reduce.
    second_bytes = round((site.rate_mbit or _LOOPBACK_PROBE_MBIT) * 1e6 / 8)
    out = folder / f"{name}.measured.json"
    job = Job(
        configurations=configurations,
        mode=mode,
        compute_seconds=compute_seconds,
        pace=pace,
        probe_bytes=min(second_bytes // 2, _LARGEST_PROBE_BYTES),
        out=str(out.resolve()),
    )
    with hosts_of(site) as places:
        raw = measure_link(places[0], places[1], payload_bytes=second_bytes)
        launch(places, "benchmarks.netlab.worker", job, folder / name, timeout_seconds)
    measured = msgspec.json.decode(out.read_bytes(), type=Measured)
    link = Link(
        hosts=site.hosts,
        rate_mbit=site.rate_mbit,
        congestion_control=site.congestion_control,
        raw_bits_per_second=raw.bits_per_second,
        round_trip_seconds=raw.round_trip_seconds,
        latency_seconds=measured.latency_seconds,
        bytes_per_second=measured.bytes_per_second,
    )
    return [Row(link=link, mode=mode, sample=sample) for sample in measured.samples]


def launch(hosts: tuple[Host, ...], module: str, job: object, stem: Path, timeout_seconds: float) -> None:
    """Run `module` on every host with `job` as its one argument, a JSON file; the log is `stem` + `.log`."""
    job_path, log = stem.with_name(f"{stem.name}.job.json"), stem.with_name(f"{stem.name}.log")
    job_path.write_bytes(msgspec.json.encode(job))
    words = starter_words(hosts, module, (str(job_path.resolve()),))
    ended = run(words, environment=worker_environment(), log=log, timeout_seconds=timeout_seconds)
    if ended.timed_out or ended.exit_code:
        how = f"no end within {timeout_seconds:.0f} s" if ended.timed_out else f"exit {ended.exit_code}"
        shown = "\n".join(ended.lines[-_SHOWN_LINES:])
        raise RunFailed(f"{stem.name}: {how}; the end of {log}:\n{shown}")


def worker_environment() -> dict[str, str]:
    """Return the environment in which `-m benchmarks.netlab...` is found, from any working directory."""
    paths = [str(REPOSITORY), str(REPOSITORY / "backend"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
