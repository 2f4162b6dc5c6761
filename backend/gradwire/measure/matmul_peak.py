"""A measured matrix product in the place of a data sheet's peak: reads the file and finds the rate that fits a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gradwire.documents.peak_schema import MatmulPeak, MatmulRate
from gradwire.measure.document import read_document

PEAK_VARIABLE = "GRADWIRE_PEAK"
"""The environment variable that names the file for a run: what `gradwire doctor --peak --out FILE` wrote."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPeak:
    """What was measured, and how many compute threads a process of this run has (None on cuda)."""

    peak: MatmulPeak
    threads: int | None


def read_matmul_peak(path: Path) -> MatmulPeak:
    """Return the measured peak in `path`; raises UsageError, with every violation, where it is none."""
    return read_document(path, "peak", MatmulPeak)


def measured_rate(measured: RunPeak, device: str, device_name: str, precision: str) -> MatmulRate | str:
    """Return the rate that stands in for the peak of `device_name` at a recipe's `training.precision`; else why not."""
    peak = measured.peak
    if (peak.device, peak.device_name) != (device, device_name):
        return f"the measured peak ({PEAK_VARIABLE}) is of {peak.device_name!r}, another device"
    dtype = precision.partition("-")[0]
    fitting = [rate for rate in peak.rates if rate.dtype == dtype]
    if not fitting:
        return f"the measured peak ({PEAK_VARIABLE}) has no rate for {dtype}"
    found = next((rate for rate in fitting if rate.threads == measured.threads), None)
    if found is None:
        known = " and ".join(str(rate.threads) for rate in fitting)
        return (
            f"the measured peak ({PEAK_VARIABLE}) is of {known} threads, and a process of this run has "
            f"{measured.threads}"
        )
    return found


def rate_in_words(rate: MatmulRate, peak: MatmulPeak) -> str:
    """Return what was measured, as a measurement names its source."""
    threads = "" if rate.threads is None else f", {rate.threads} {'thread' if rate.threads == 1 else 'threads'}"
    return (
        f"measured: {rate.dtype} product of {rate.size} x {rate.size} matrices{threads}, torch {peak.torch}, "
        f"{peak.measured_at}"
    )
