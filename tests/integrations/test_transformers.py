"""The callback in a real Trainer: what it counts, what it leaves out, and what it adds to the log."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.real_runs import run_words, torchrun

pytestmark = pytest.mark.distributed

SCRIPT = Path(__file__).with_name("trainer_run.py")
RATES = {
    "throughput/samples_per_sec",
    "throughput/tokens_per_sec",
    "throughput/slots_per_sec",
    "throughput/device/samples_per_sec",
    "throughput/device/tokens_per_sec",
}


def found(folder: Path, rank: int = 0) -> Any:
    return json.loads((folder / f"found-{rank}.json").read_text(encoding="utf-8"))


def throughput_of(log: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in log.items() if name.startswith("throughput/")}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("alone")
    run_words(sys.executable, "-W", "error", SCRIPT, folder).check()
    return found(folder)


def test_a_step_holds_its_micro_steps_and_the_wait_for_their_data(alone: Any) -> None:
    # Two passes of a second and two batches that take a quarter; the loader reads one batch ahead, in the first step.
    assert alone["step_seconds"][0] == 2.75
    assert sum(alone["step_seconds"]) == 4 * 2 * (1.0 + 0.25)


def test_a_call_of_train_that_failed_leaves_nothing_that_counts(alone: Any) -> None:
    assert alone["hooks"] == 1


def test_evaluation_and_checkpoints_are_left_out(alone: Any) -> None:
    # Two evaluations of two batches of 8, and the second one's data; two checkpoints.
    assert alone["excluded_seconds"] == 2 * 2 * (100.0 + 0.25) + 2 * 1000.0


def test_tokens_are_real_ones_and_slots_hold_padding(alone: Any) -> None:
    assert alone["samples"] == [4] * 4
    assert alone["slots"] == [4 * 8] * 4
    # All 16 sequences were read once, twice each length of 1 to 8.
    assert sum(alone["tokens"]) == 2 * 36


def test_each_training_log_has_the_rates_of_its_steps(alone: Any) -> None:
    logs = [log for log in alone["log"] if "loss" in log]
    assert [log["step"] for log in logs] == [2, 4]
    seconds, tokens = alone["step_seconds"], alone["tokens"]
    for log, steps in zip(logs, (slice(1, 2), slice(2, 4)), strict=True):
        assert set(throughput_of(log)) == RATES
        assert log["throughput/tokens_per_sec"] == sum(tokens[steps]) / sum(seconds[steps])
        assert log["throughput/device/samples_per_sec"] == sum(alone["samples"][steps]) / sum(seconds[steps])


def test_the_last_log_has_the_whole_run_without_its_warm_up(alone: Any) -> None:
    last = alone["log"][-1]
    assert "train_runtime" in last
    assert last["throughput/tokens_per_sec"] == sum(alone["tokens"][1:]) / sum(alone["step_seconds"][1:])
    assert last["throughput/excluded_seconds"] == alone["excluded_seconds"]


def test_logs_of_evaluation_have_no_rates(alone: Any) -> None:
    evaluated = [log for log in alone["log"] if "eval_loss" in log]
    assert len(evaluated) == 2
    assert not any(throughput_of(log) for log in evaluated)


def test_two_processes_add_up(tmp_path: Path) -> None:
    torchrun(2, SCRIPT, tmp_path).check(leaves_as_python_does=True)
    ranks = [found(tmp_path, rank) for rank in range(2)]
    last = [throughput_of(rank["log"][-1]) for rank in ranks]
    assert last[0].keys() == last[1].keys() == RATES | {"throughput/excluded_seconds"}
    seconds = max(sum(rank["step_seconds"][1:]) for rank in ranks)
    for figures in last:
        for name, counted in (("samples", "samples"), ("tokens", "tokens"), ("slots", "slots")):
            total = sum(sum(rank[counted][1:]) for rank in ranks)
            assert figures[f"throughput/{name}_per_sec"] == total / seconds
        assert figures["throughput/device/tokens_per_sec"] == figures["throughput/tokens_per_sec"] / 2
    assert sum(sum(rank["samples"]) for rank in ranks) == 2 * sum(ranks[0]["samples"])
