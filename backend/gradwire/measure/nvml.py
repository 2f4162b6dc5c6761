"""Asks NVIDIA's management library what a device took and what it is; says why where it cannot."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

from gradwire.documents.measurement_schema import Device
from gradwire.measure.energy import DeviceEnergy

ON_CPU = "a cpu's energy is not readable without rights over the machine"


class EnergyCounter:
    """Counts what one device takes from `start` on.

    `uuid` is the device's, as torch gives it, without the leading `GPU-`; None, with the `reason`, where there is none.
    """

    def __init__(
        self, uuid: str | None, *, reason: str | None = ON_CPU, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._handle: Any = None
        self._reason = reason
        if uuid is not None:
            self._handle, self._reason = _open(uuid)
        # Tells devices apart and names none.
        self._device = None if uuid is None else hashlib.sha256(uuid.encode()).hexdigest()[:12]
        self._began = clock()
        self._joules_before: float | None = None
        self._stopped: DeviceEnergy | None = None

    def start(self) -> None:
        """Begin to count; a device that was working works on, so wait for it first where that matters."""
        self._began = self._clock()
        self._joules_before = self._read()

    def stop(self) -> None:
        """Count no further."""
        self._stopped = self.read()

    def read(self) -> DeviceEnergy:
        """Return what the device took from `start` to `stop`, or so far; joules None, with the reason, if unknown."""
        if self._stopped is not None:
            return self._stopped
        now = self._read()
        known = now is not None and self._joules_before is not None
        return DeviceEnergy(
            joules=max(0.0, (now or 0.0) - (self._joules_before or 0.0)) if known else None,
            seconds=self._clock() - self._began,
            device=self._device,
            reason=None if known else self._reason or "nothing was timed",
        )

    def _read(self) -> float | None:
        if self._handle is None:
            return None
        import pynvml

        try:
            # Millijoules since the driver was loaded.
            return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1000
        except pynvml.NVMLError as error:
            self._handle, self._reason = None, f"the device does not report its energy: {error}"
            return None


def device_facts(uuid: str | None) -> Device | None:
    """Return what NVML says of the device; None where there is no such device or library."""
    handle = None if uuid is None else _open(uuid)[0]
    if handle is None:
        return None
    import pynvml

    def ask(question: Callable[[Any], Any]) -> Any:
        try:
            return question(handle)
        except pynvml.NVMLError:
            return None

    memory = ask(pynvml.nvmlDeviceGetMemoryInfo)
    limit = ask(pynvml.nvmlDeviceGetEnforcedPowerLimit)
    return Device(
        memory_bytes=None if memory is None else int(memory.total),
        driver=_text(ask(lambda _: pynvml.nvmlSystemGetDriverVersion())),
        power_limit_watts=None if limit is None else limit / 1000,
        max_clock_mhz=ask(lambda device: pynvml.nvmlDeviceGetMaxClockInfo(device, pynvml.NVML_CLOCK_SM)),
    )


def _open(uuid: str) -> tuple[Any, str | None]:
    """Return NVML's handle of a device, or None and the reason."""
    try:
        import pynvml
    except ImportError:
        return None, "pynvml is not installed; `pip install nvidia-ml-py` brings it"
    try:
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode()), None
    except pynvml.NVMLError as error:
        return None, f"NVML did not open the device: {error}"


def _text(value: Any) -> str | None:
    return value.decode() if isinstance(value, bytes) else value
