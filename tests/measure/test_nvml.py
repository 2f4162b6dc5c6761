"""What NVML is asked, with the real library: on this machine it may have nothing to say, and then it says why."""

from __future__ import annotations

import sys

import pytest

from gradwire.measure.nvml import ON_CPU, EnergyCounter, device_facts


class Clock:
    now = 5.0

    def __call__(self) -> float:
        return self.now


def test_a_cpu_reports_no_energy_and_the_reason() -> None:
    clock = Clock()
    counter = EnergyCounter(None, clock=clock)
    counter.start()
    clock.now = 7.5
    energy = counter.read()
    assert (energy.joules, energy.seconds, energy.device, energy.reason) == (None, 2.5, None, ON_CPU)


def test_what_was_stopped_counts_no_further() -> None:
    clock = Clock()
    counter = EnergyCounter(None, clock=clock)
    counter.start()
    clock.now = 6.0
    counter.stop()
    clock.now = 60.0
    assert counter.read().seconds == 1.0


def test_a_device_that_is_not_there_is_a_reason_and_no_error() -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed: pip install 'gradwire[nvidia]'")
    counter = EnergyCounter("00000000-0000-0000-0000-000000000000")
    counter.start()
    energy = counter.read()
    assert energy.joules is None
    assert energy.reason is not None
    assert energy.reason.startswith("NVML did not open the device: ")
    assert energy.device is not None
    assert "0000" not in energy.device
    assert device_facts("00000000-0000-0000-0000-000000000000") is None
    assert device_facts(None) is None


def test_a_missing_library_is_a_reason_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    counter = EnergyCounter("00000000-0000-0000-0000-000000000000")
    assert counter.read().reason == "pynvml is not installed; `pip install nvidia-ml-py` brings it"


@pytest.mark.gpu
def test_a_gpu_that_works_takes_energy() -> None:
    torch = pytest.importorskip("torch")
    uuid = str(torch.cuda.get_device_properties(0).uuid)
    counter = EnergyCounter(uuid)
    counter.start()
    matrix = torch.randn(8192, 8192, device="cuda")
    for _ in range(200):
        matrix @ matrix
    torch.cuda.synchronize()
    energy = counter.read()
    assert energy.joules is not None
    assert 10 < energy.joules / energy.seconds < 2000
    facts = device_facts(uuid)
    assert facts is not None
    assert facts.memory_bytes is not None
