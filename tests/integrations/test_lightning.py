"""The callback in a real Lightning Trainer: what it counts, what it leaves out, what the loggers get."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.real_runs import run_words, torchrun

pytest.importorskip("pytorch_lightning", reason="pytorch-lightning is not installed: pip install 'gradwire[lightning]'")
pytestmark = pytest.mark.distributed

SCRIPT = Path(__file__).with_name("lightning_run.py")


def found(folder: Path, rank: int = 0) -> Any:
    return json.loads((folder / f"found-{rank}.json").read_text(encoding="utf-8"))


def logged(folder: Path) -> list[dict[str, float]]:
    """The rows that Lightning's own CSV logger wrote."""
    rows = csv.DictReader((folder / "metrics.csv").read_text(encoding="utf-8").splitlines())
    return [{name: float(value) for name, value in row.items() if value} for row in rows]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("alone")
    run_words(sys.executable, SCRIPT, folder).check()
    return {**found(folder), "log": logged(folder)}


def test_a_step_holds_its_micro_steps_and_the_wait_for_their_data(alone: Any) -> None:
    # Two passes of a second and two batches that take a quarter.
    assert alone["step_seconds"] == [2.5] * 4


def test_validation_and_checkpoints_are_left_out_and_reported(alone: Any) -> None:
    # Two validations of two batches and their data, with a checkpoint each, and two checkpoints; the check before
    # training is in none.
    assert alone["excluded_seconds"] == 2 * 2 * (100.0 + 0.25) + 2 * 1000.0 + 2 * 1000.0
    assert alone["log"][-1]["throughput/excluded_seconds"] == alone["excluded_seconds"]
    assert alone["is_restored"]


def test_tokens_are_real_ones_and_slots_hold_padding(alone: Any) -> None:
    # Lengths of 1 to 8 in turn, four in a step.
    assert alone["samples"] == [4] * 4
    assert alone["tokens"] == [10, 26, 10, 26]
    assert alone["slots"] == [4 * 8] * 4


def test_loggers_get_the_rates_of_the_steps_since_the_last_time(alone: Any) -> None:
    first, second, last = alone["log"]
    assert [row["step"] for row in alone["log"]] == [2, 4, 4]
    assert first["throughput/tokens_per_sec"] == 26 / 2.5
    assert second["throughput/tokens_per_sec"] == (10 + 26) / 5.0
    assert last["throughput/tokens_per_sec"] == (26 + 10 + 26) / 7.5
    assert last["throughput/slots_per_sec"] == 32 / 2.5


def test_a_resumed_run_goes_on_after_the_steps_of_its_checkpoint(alone: Any) -> None:
    assert alone["resumed"] == {"step_seconds": [2.5] * 6, "timed": [1, 3, 4, 5]}


def test_steps_of_another_number_of_processes_are_left_out(alone: Any) -> None:
    assert alone["of_another_size"] == [2.5] * 2


def test_two_processes_add_up(tmp_path: Path) -> None:
    torchrun(2, SCRIPT, tmp_path).check(leaves_as_python_does=True)
    ranks = [found(tmp_path, rank) for rank in range(2)]
    last = logged(tmp_path)[-1]
    for name in ("samples", "tokens", "slots"):
        total = sum(sum(rank[name][1:]) for rank in ranks)
        assert last[f"throughput/{name}_per_sec"] == total / 7.5
    assert last["throughput/device/tokens_per_sec"] == last["throughput/tokens_per_sec"] / 2
