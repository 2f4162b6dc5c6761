"""Adds up the energy that the devices of a run took, or says why it is not known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gradwire.documents.measurement_schema import Energy


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceEnergy:
    """What one rank's device took from the start of the first timed step to the end of the last, pauses included.

    `joules` is None, and `reason` says why, where the device does not report it. `device` tells devices apart: ranks
    that share one report the same energy.
    """

    joules: float | None
    seconds: float
    device: str | None
    reason: str | None


def energy_of(readings: Sequence[DeviceEnergy | None], *, tokens: int) -> Energy:
    """Return the energy of all devices, for the `tokens` of its steps; null, with the reason, where one is not known.

    Joules are the sum over devices, watts the mean of a device. What else the machine takes is not in it.
    """
    found = [reading for reading in readings if reading is not None]
    if not found:
        return _unknown("no rank asked its device for it")
    missing = [reading.reason or "the device did not say" for reading in found if reading.joules is None]
    if missing or len(found) < len(readings):
        return _unknown(missing[0] if missing else "not every rank asked its device for it")
    devices = {reading.device or str(rank): reading for rank, reading in enumerate(found)}
    joules = math.fsum(reading.joules or 0.0 for reading in devices.values())
    seconds = math.fsum(reading.seconds for reading in devices.values())
    return Energy(
        joules=joules,
        joules_per_token=joules / tokens if tokens else None,
        mean_watts_per_device=joules / seconds if seconds > 0 else None,
        reason=None,
    )


def _unknown(reason: str) -> Energy:
    return Energy(joules=None, joules_per_token=None, mean_watts_per_device=None, reason=reason)
