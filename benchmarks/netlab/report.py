"""Writes the lab's figures as tables that read well both in a terminal and as markdown."""

from __future__ import annotations

import csv
import io
import os
import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import version

from benchmarks.netlab.configurations import ALONE
from benchmarks.netlab.figures import Figure, Place, Spread, figures
from benchmarks.netlab.rows import Link, Row
from benchmarks.netlab.targets import Outcome, outcomes

_HEAD = (
    "configuration",
    "MiB",
    "step ms",
    "scaling efficiency",
    "time to DDP",
    "time to torch r4",
    "MB sent",
    "fewer",
    "CPU ms",
)
_NOTE = """\
Scaling efficiency: the step of one process alone, measured in the same rounds, over the step. Times: over plain DDP's
and over torch's PowerSGD rank 4 in one bucket. Median [smallest, largest] over the rounds; configurations took turns.
MiB: bucket size, where not torch's default. MB sent: per step and host, from the interface's counters. CPU: rank 0's
process, all threads."""
_EMULATED = "Compute is emulated: forward and backward sleep. Gradients, buckets, hooks, gloo and the wire are real."


def report_text(rows: Sequence[Row]) -> str:
    """Return every place's table, then the targets, as markdown."""
    measured = figures(rows)
    links = {_place_of(row): row.link for row in rows}
    parts = [f"# Network lab\n\n{machine_line()}\n\n{_NOTE}"]
    for place, place_figures in measured.items():
        note = f"\n{_EMULATED}" if place.mode == "emulated" else ""
        parts.append(
            f"## {place_name(place.hosts, place.rate_mbit)}, {place.mode} compute\n\n{_link_line(links[place])}{note}\n"
        )
        parts.append(aligned([_HEAD, *(_cells(figure) for figure in place_figures)]))
    if met := outcomes(measured):
        parts.append("## Targets\n\n" + targets_table(met))
    return "\n\n".join(parts) + "\n"


def targets_table(found: Sequence[Outcome]) -> str:
    """Return the promised beside the measured."""
    head = ("place", "configuration", "quantity", "target", "measured", "without any communication", "")
    return aligned([head, *(_target_cells(outcome) for outcome in found)])


def place_name(hosts: int, rate_mbit: float | None) -> str:
    """Return the place in words: `2 hosts, 100 Mb/s`."""
    if rate_mbit is None:
        return f"{hosts} hosts, loopback, not shaped"
    return f"{hosts} hosts, " + (f"{rate_mbit / 1000:g} Gb/s" if rate_mbit >= 1000 else f"{rate_mbit:g} Mb/s")


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return a markdown table whose columns line up; the first row is the head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def machine_line() -> str:
    """Return what the figures depend on beside the lab: cores, load, kernel, torch."""
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} cores, load {load:.1f} at the end, Linux {platform.release()}, "
        f"torch {version('torch')}, gloo, 1 thread per rank"
    )


def csv_text(rows: Iterable[Row]) -> str:
    """Return the raw rows flattened, one line per step."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        (
            "hosts",
            "rate_mbit",
            "mode",
            "configuration",
            "round",
            "step",
            "seconds",
            "sent_bytes",
            "received_bytes",
            "cpu_seconds",
        )
    )
    for row in rows:
        sample = row.sample
        for step, seconds in enumerate(sample.step_seconds):
            writer.writerow(
                (
                    *(row.link.hosts, row.link.rate_mbit, row.mode, sample.configuration, sample.round, step, seconds),
                    *(sample.sent_bytes, sample.received_bytes, sample.cpu_seconds),
                )
            )
    return out.getvalue()


def _place_of(row: Row) -> Place:
    return Place(hosts=row.link.hosts, rate_mbit=row.link.rate_mbit, mode=row.mode)


def _link_line(link: Link) -> str:
    return (
        f"Calibrated in this run: one TCP connection ({link.congestion_control}) carries "
        f"{link.raw_bits_per_second / 1e6:.1f} Mb/s, a byte takes "
        f"{link.round_trip_seconds * 1e6:.0f} us there and back; "
        f"an all-reduce takes {link.latency_seconds * 1e6:.0f} us and averages "
        f"{link.bytes_per_second / 1e6:.2f} MB/s of gradients."
    )


def _cells(figure: Figure) -> tuple[str, ...]:
    alone = figure.configuration == ALONE
    return (
        figure.configuration,
        "" if figure.bucket_cap_mb is None else f"{figure.bucket_cap_mb:g}",
        _spread(figure.step_seconds, 1000, ".1f"),
        _spread(figure.scaling_efficiency, 1, ".3f"),
        _spread(figure.time_to_plain, 1, ".3f"),
        _spread(figure.time_to_torch[4], 1, ".3f"),
        "" if alone else f"{figure.sent_bytes / 1e6:.3f}",
        "" if alone else f"1/{figure.fewer_bytes:.2f}",
        f"{figure.cpu_seconds * 1000:.0f}",
    )


def _target_cells(outcome: Outcome) -> tuple[str, ...]:
    target = outcome.target
    sign = "<=" if target.quantity.startswith("step time") else ">="
    spread = Spread(median=outcome.measured, low=outcome.low, high=outcome.high)
    return (
        place_name(outcome.place.hosts, outcome.place.rate_mbit),
        target.configuration,
        target.quantity + (f" r{target.torch_rank}" if "torch" in target.quantity else ""),
        f"{sign} {target.bound:g}",
        _spread(spread, 1, ".3f"),
        "" if outcome.floor is None else f"{outcome.floor:.3f}",
        "met" if outcome.met else "MISSED",
    )


def _spread(spread: Spread, factor: float, form: str) -> str:
    median, low, high = (format(value * factor, form) for value in (spread.median, spread.low, spread.high))
    return median if low == high else f"{median} [{low}, {high}]"
