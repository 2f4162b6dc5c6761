"""steps.jsonl of real runs: what a killed one leaves, and that it says what the measurement says."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gradwire.measure.measurement import read_measurement
from gradwire.measure.steps import read_steps
from tests.distributed.real_runs import lowered, run_words

pytestmark = pytest.mark.distributed


@pytest.mark.parametrize("moment", ["before the first step", "in a step"])
def test_a_run_killed_at_any_moment_leaves_every_finished_step(tmp_path: Path, moment: str) -> None:
    folder = lowered(tmp_path / "out", "native", "training.num_gpus=1", "training.max_steps=1000000")
    words = [sys.executable, "-m", "gradwire.train", str(folder)]
    chance = random.Random(moment)
    last_seen = 0 if moment == "before the first step" else chance.randint(1, 12)
    delay = chance.uniform(0, 1.0 if last_seen == 0 else 0.1)
    with subprocess.Popen(words, stderr=subprocess.PIPE) as process:
        try:
            assert process.stderr is not None
            deadline = time.monotonic() + 60
            logged = b""
            while last_seen and f"step {last_seen}/".encode() not in logged and time.monotonic() < deadline:
                logged += process.stderr.readline()
            time.sleep(delay)
        finally:
            process.send_signal(signal.SIGKILL)
        logged += process.stderr.read()
    when = (last_seen, delay)
    # A step is logged after its line is written.
    finished = [int(number) for number in re.findall(rb"^step (\d+)/.*\n", logged, flags=re.MULTILINE)]
    assert len(finished) >= last_seen, when
    assert not (folder / "measurement.json").exists()
    if not (folder / "steps.jsonl").exists():
        assert not finished, when
        return
    log = read_steps(folder)
    assert [step.step for step in log.steps] == list(range(1, len(log.steps) + 1)), when
    assert len(log.steps) >= len(finished), when
    assert all(step.loss is not None and step.seconds > 0 for step in log.steps)
    assert all((step.samples, step.tokens) == (8, 8 * 48) for step in log.steps)


def test_steps_say_what_the_measurement_says(tmp_path: Path) -> None:
    folder = lowered(tmp_path / "out", "native", "training.num_gpus=1", "training.max_steps=4")
    (folder / "steps.jsonl").write_text("of an earlier run\n", encoding="utf-8")
    run_words(sys.executable, "-m", "gradwire.train", folder).check()
    steps, measurement = read_steps(folder).steps, read_measurement(folder / "measurement.json")
    assert [step.loss for step in steps] == measurement.losses
    assert [step.gradient_norm for step in steps] == measurement.gradient_norms
    assert [step.seconds for step in steps] == measurement.step_seconds.each
    for step in steps:
        assert step.laps is not None
        parts = (
            step.laps.input_wait,
            step.laps.passes,
            step.laps.pipeline_bubble,
            step.laps.optimizer,
            step.laps.other,
        )
        assert sum(parts) == pytest.approx(step.seconds, rel=1e-9)
