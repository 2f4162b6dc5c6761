"""Turns raw rows into figures: step time, efficiency and ratios, each taken within a round, with their spread."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.netlab.configurations import ALONE, PLAIN, TORCH_POWERSGD
from benchmarks.netlab.rows import Mode, Row, Sample


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """The median over the rounds, with the smallest and the largest."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where figures belong: `rate_mbit` None is loopback."""

    hosts: int
    rate_mbit: float | None
    mode: Mode


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One configuration at one place.

    `scaling_efficiency` is the compute of a single process over the step; `time_to_plain` and `time_to_torch` are step
    times over those of plain DDP and of torch's PowerSGD in one bucket, by its matrix_approximation_rank, as far as
    measured. `fewer_bytes` is what plain DDP sends over what this sends. All ratios pair the samples of one round.
    """

    configuration: str
    bucket_cap_mb: float | None
    step_seconds: Spread
    scaling_efficiency: Spread
    time_to_plain: Spread
    time_to_torch: dict[int, Spread]
    sent_bytes: float
    fewer_bytes: float
    cpu_seconds: float


def figures(rows: Iterable[Row]) -> dict[Place, list[Figure]]:
    """Return the figures of every place, configurations in the order in which they were first measured."""
    places: dict[Place, dict[str, list[Sample]]] = {}
    for row in rows:
        place = Place(hosts=row.link.hosts, rate_mbit=row.link.rate_mbit, mode=row.mode)
        places.setdefault(place, {}).setdefault(row.sample.configuration, []).append(row.sample)
    return {place: [_figure(name, samples) for name in samples] for place, samples in places.items()}


def by_name(place_figures: Sequence[Figure]) -> dict[str, Figure]:
    """Return the figures of one place under their configurations' names."""
    return {figure.configuration: figure for figure in place_figures}


def _figure(name: str, samples: Mapping[str, list[Sample]]) -> Figure:
    own = _seconds(samples[name])
    sent = statistics.median(sample.sent_bytes for sample in samples[name])
    plain_sent = statistics.median(sample.sent_bytes for sample in samples[PLAIN])
    return Figure(
        configuration=name,
        bucket_cap_mb=samples[name][0].bucket_cap_mb,
        step_seconds=_spread(own),
        scaling_efficiency=_ratio(_seconds(samples[ALONE]), own),
        time_to_plain=_ratio(own, _seconds(samples[PLAIN])),
        time_to_torch={
            rank: _ratio(own, _seconds(samples[torch_name]))
            for rank, torch_name in TORCH_POWERSGD.items()
            if torch_name in samples
        },
        sent_bytes=sent,
        # A process that averages nothing sends only what closes a round.
        fewer_bytes=float("inf") if name == ALONE else plain_sent / sent,
        cpu_seconds=statistics.median(sample.cpu_seconds for sample in samples[name]),
    )


def _seconds(samples: Sequence[Sample]) -> list[float]:
    return [statistics.median(sample.step_seconds) for sample in sorted(samples, key=lambda sample: sample.round)]


def _ratio(above: Sequence[float], below: Sequence[float]) -> Spread:
    return _spread([one / other for one, other in zip(above, below, strict=True)])


def _spread(values: Sequence[float]) -> Spread:
    return Spread(median=statistics.median(values), low=min(values), high=max(values))
