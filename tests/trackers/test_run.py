"""A run whose recipe names trackers: they have what steps.jsonl has."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gradwire.measure.steps import read_steps
from tests.distributed.real_runs import lowered, run_words

pytestmark = pytest.mark.distributed


def test_a_run_logs_each_step_to_the_trackers_of_its_recipe(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client", reason="prometheus_client is not installed")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    trackers = "measurement.trackers=[tensorboard,prometheus]"
    folder = lowered(tmp_path / "run", "native", "training.num_gpus=1", "training.max_steps=3", trackers)
    run_words(sys.executable, "-m", "gradwire.train", folder).check()
    steps = read_steps(folder).steps
    assert len(steps) == 3
    events = accumulator.EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    for name, expected in {
        "train/loss": [step.loss for step in steps],
        "train/grad_norm": [step.gradient_norm for step in steps],
        "time/step_seconds": [step.seconds for step in steps],
        "throughput/tokens_per_sec": [step.tokens / step.seconds for step in steps],
        "throughput/device/samples_per_sec": [step.samples / step.seconds for step in steps],
    }.items():
        logged = events.Scalars(name)
        assert [event.step for event in logged] == [1, 2, 3]
        # TensorBoard keeps 32 bits.
        assert [event.value for event in logged] == pytest.approx(expected, rel=1e-6)
    last = dict(line.split() for line in (folder / "metrics.prom").read_text().splitlines() if line[0] != "#")
    assert float(last['gradwire_train_loss{run="recipe-native-1"}']) == steps[-1].loss
