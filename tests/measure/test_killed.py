"""What a process leaves that is killed at any moment: every finished step, and documents that are whole."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradwire.measure.document import read_document
from gradwire.measure.measurement import read_measurement, write_measurement
from gradwire.measure.steps import read_steps

Make = Callable[..., Any]

# Writes steps as fast as it can and says each number when it is written; the measurement, again and again.
WRITER = """
import sys
from pathlib import Path
from gradwire.documents.step_schema import Step
from gradwire.measure.measurement import read_measurement, write_measurement
from gradwire.measure.steps import StepWriter

folder = Path(sys.argv[1])
measurement = read_measurement(folder / "first.json")
with StepWriter(folder / "steps.jsonl") as writer:
    for number in range(1, 10**9):
        writer.write(Step(step=number, loss=1 / number, gradient_norm=None, seconds=0.5, samples=8, tokens=1024))
        sys.stdout.write(f"{number}\\n")
        sys.stdout.flush()
        if number % 7 == 0:
            write_measurement(folder / "measurement.json", measurement)
"""


@pytest.mark.parametrize("attempt", range(8))
def test_a_killed_writer_leaves_whole_documents(
    plan: Make, record: Make, measure: Make, tmp_path: Path, attempt: int
) -> None:
    expected = measure(plan(), [record([1.0, 0.1])] * 2, notes=["padding " * 2000])
    write_measurement(tmp_path / "first.json", expected)
    delay = random.Random(attempt).uniform(0, 0.08)
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [process.stdout.readline()]
        time.sleep(delay)
        process.kill()
        said += process.stdout.readlines()
    finished = [int(line) for line in said if line.endswith("\n")]
    log = read_steps(tmp_path)
    assert [step.step for step in log.steps] == list(range(1, len(log.steps) + 1)), (attempt, delay)
    # The last one may have been written and not yet said.
    assert len(log.steps) >= finished[-1], (attempt, delay)
    if (tmp_path / "measurement.json").exists():
        assert read_measurement(tmp_path / "measurement.json") == expected
    assert read_document(tmp_path / "first.json", "measurement", type(expected)) == expected
