"""The meter that reads the device's own time: exact on cpu with a clock that is told the time; real on cuda."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXACT = """
from gradwire.integrations.device import DeviceMeter
import torch
readings = iter([10.0, 12.0, 13.0, 20.0, 24.0, 30.0])
meter = DeviceMeter("cpu", warmup_steps=1, clock=lambda: next(readings))
meter.start()                                        # 10
meter.step(samples=2, tokens=torch.tensor(7))        # 12
end = meter.read()                                   # 13
meter.step(samples=2, tokens=9, at=end)
meter.pause(at=end)
meter.resume()                                       # 20
meter.step(samples=1, tokens=4, slots=6)             # 24
assert meter.finished() is meter.result()
result = meter.result()
assert result.step_seconds == (2.0, 1.0, 4.0), result.step_seconds
assert result.tokens == (7, 9, 4) and result.paused_seconds == 7.0
assert result.tokens_per_second == 13 / 5.0
assert result.slots == (7, 9, 6)

again = DeviceMeter("cpu", warmup_steps=1, counts=False, clock=lambda: next(later))
later = iter([0.0, 1.0, 3.0])
again.load_state_dict(result.state_dict())
again.start()
again.step(samples=2, tokens=9)
again.step(samples=2, tokens=9)
resumed = again.result()
assert resumed.step_seconds == (2.0, 1.0, 4.0, 1.0, 2.0) and resumed.timed == (1, 2, 4)
# Its checkpoint was of the rank that counts.
assert resumed.tokens == (0, 0, 0, 0, 0)

from gradwire.errors import UsageError
whole = DeviceMeter("cpu", clock=lambda: 0.0)
whole.start()
whole.step(samples=2.0, tokens=torch.tensor(7.0))
assert whole.result().tokens == (7,)
for wrong in (2.5, torch.tensor(2.5), float("nan")):
    try:
        whole.step(samples=1, tokens=wrong)
    except UsageError as refusal:
        assert "tokens must be a whole number; got" in str(refusal)
    else:
        raise AssertionError(wrong)
"""

# What is queued on a device of another kind takes a second, which passes for who waits for it.
ON_ANOTHER_DEVICE = """
import types, torch
from gradwire.integrations.device import DeviceMeter
waits = []
module = types.ModuleType("privateuseone")
module.synchronize = lambda: waits.append(1.0)
torch._register_device_module("privateuseone", module)
meter = DeviceMeter("privateuseone", clock=lambda: sum(waits))
meter.start()
meter.step(samples=1, tokens=1)
assert meter.result().step_seconds == (1.0,)
"""

# A step takes as many seconds as its number; log() must get the steps since the last time, and none of the warm-up.
LOGGED = """
import itertools, sys, torch
from accelerate import Accelerator
from gradwire.integrations.device import DeviceMeter
from gradwire.integrations.figures import Flops
accelerator = Accelerator(cpu=True, log_with="tensorboard", project_dir=sys.argv[1])
accelerator.init_trackers("run")
readings = itertools.accumulate(itertools.count(), initial=0.0)
meter = DeviceMeter(
    accelerator.device,
    warmup_steps=1,
    log=accelerator.log,
    log_every=2,
    flops=Flops(per_token=10.0, peak_per_second=1000.0),
    clock=lambda: float(next(readings)),
)
meter.start()
for _ in range(5):
    meter.step(samples=4, tokens=60, slots=80)
accelerator.end_training()

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1] + "/run")
events.Reload()
found = {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}
seconds = meter.result().step_seconds
first, second = 60 / seconds[1], 120 / (seconds[2] + seconds[3])
for name, scale in {
    "throughput/tokens_per_sec": 1,
    "throughput/device/tokens_per_sec": 1,
    "throughput/slots_per_sec": 80 / 60,
    "throughput/samples_per_sec": 4 / 60,
    "throughput/device/flops_per_sec": 10,
    "throughput/device/mfu": 0.01,
}.items():
    assert found.pop(name) == [
        (2, torch.tensor(first * scale).item()), (4, torch.tensor(second * scale).item())
    ], name
assert found.pop("throughput/device/samples_per_sec") and not found, found
"""

ON_CUDA = """
from gradwire.integrations.device import DeviceMeter
import time, torch
meter = DeviceMeter("cuda")
matrix = torch.randn(8192, 8192, device="cuda")
torch.cuda.synchronize()
began = time.perf_counter()
meter.start()
for _ in range(20):
    for _ in range(10):
        matrix @ matrix
    meter.step(samples=1, tokens=(matrix[0] * 0 + 1).sum().long())
queued = time.perf_counter() - began
result = meter.result()
took = time.perf_counter() - began
assert queued < 0.5 * took, (queued, took)
assert abs(result.timed_seconds / took - 1) < 0.05, (result.timed_seconds, took)
assert result.tokens == (8192,) * 20
"""


def run_script(script: str, *arguments: str) -> None:
    words = [sys.executable, "-W", "error", "-c", script, *arguments]
    finished = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 0, finished.stderr


def test_calls_are_timed_by_the_clock_and_by_earlier_readings() -> None:
    run_script(EXACT + ON_ANOTHER_DEVICE)


def test_every_few_steps_accelerate_logs_the_rates_since_the_last_time(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: pip install 'gradwire[trackers]'")
    run_script(LOGGED, str(tmp_path))


@pytest.mark.gpu
def test_steps_on_cuda_last_as_long_as_the_device_and_queueing_does_not_wait() -> None:
    run_script(ON_CUDA)
