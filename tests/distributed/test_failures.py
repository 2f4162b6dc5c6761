"""What goes wrong ends the run, on every rank, with its exit code and a message that says what happened."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gradwire.launch.probe import free_port
from gradwire.plan import Backend
from tests.distributed.real_runs import lowered, run_words, torchrun

pytestmark = pytest.mark.distributed


def test_fewer_processes_than_planned(tmp_path: Path) -> None:
    folder = lowered(tmp_path / "out", "native")
    finished = run_words("python", "-m", "gradwire.train", folder)
    assert finished.exit_code == 4
    assert "the plan is for 2 processes, but 1 was started" in finished.output
    assert "No launcher started this process" in finished.output
    assert "Traceback" not in finished.output


def test_accelerate_that_quietly_starts_one_process(tmp_path: Path) -> None:
    folder = lowered(tmp_path / "out", "accelerate")
    config = folder / "accelerate.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace("MULTI_GPU", "MULTI_CPU"), encoding="utf-8")
    error_file = tmp_path / "error.json"
    command = ("accelerate", "launch", "--config_file", config, "-m", "gradwire.train", folder)
    finished = run_words(*command, GRADWIRE_ERROR_FILE=str(error_file))
    assert finished.exit_code != 0
    assert "Accelerate starts a single process, without a word" in finished.output
    assert json.loads(error_file.read_text(encoding="utf-8"))["exit_code"] == 4
    assert not (folder / "measurement.json").exists()


def test_more_processes_than_planned_says_so_once(tmp_path: Path) -> None:
    folder = lowered(tmp_path / "out", "native", "training.num_gpus=1")
    # The rank that speaks starts later than the other, as on a busy machine: that one's end must not end it.
    (tmp_path / "sitecustomize.py").write_text("import os, time\ntime.sleep(os.environ.get('RANK') == '0')\n")
    late = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    finished = torchrun(2, "-m", "gradwire.train", folder, PYTHONPATH=late)
    assert finished.exit_code != 0
    assert finished.output.count("the plan is for 1 processes, but 2 were started") == 1


def test_fsdp_through_accelerate_on_cpu_is_refused(tmp_path: Path) -> None:
    folder = lowered(tmp_path / "out", "accelerate", "parallelism.data.strategy=fsdp", "training.num_gpus=1")
    finished = run_words("python", "-m", "gradwire.train", folder)
    assert finished.exit_code == 4
    assert "fsdp through Accelerate needs CUDA devices" in finished.output


@pytest.mark.parametrize("backend", ["deepspeed", "accelerate"])
def test_edited_deepspeed_config_is_refused_before_training(tmp_path: Path, backend: Backend) -> None:
    folder = lowered(tmp_path / "out", backend, "parallelism.data.strategy=zero2", "training.num_gpus=1")
    config = folder / "deepspeed.json"
    config.write_text(config.read_text(encoding="utf-8").replace('"stage": 2', '"stage": 3'), encoding="utf-8")
    launcher = (
        ("python",) if backend == "deepspeed" else ("accelerate", "launch", "--config_file", folder / "accelerate.yaml")
    )
    finished = run_words(*launcher, "-m", "gradwire.train", folder)
    assert finished.exit_code != 0
    assert "zero_optimization.stage is 3, the plan says 2" in finished.output
    assert not (folder / "measurement.json").exists()


def test_diverging_run_fails_on_every_rank(tmp_path: Path) -> None:
    sets = ("training.optimizer=SGD", "training.learning_rate=1000", "training.gradient_clip=null")
    folder = lowered(tmp_path / "out", "native", *sets)
    error_file = tmp_path / "error.json"
    finished = torchrun(2, "-m", "gradwire.train", folder, GRADWIRE_ERROR_FILE=str(error_file))
    assert finished.exit_code == 1
    assert finished.output.count("training diverged") == 1
    assert "training diverged" in json.loads(error_file.read_text(encoding="utf-8"))["message"]
    assert not (folder / "measurement.json").exists()


def test_torchs_powersgd_over_several_gloo_buckets_fails_instead_of_hanging(tmp_path: Path) -> None:
    powersgd = (
        "communication.compression={method: powersgd-torch, start_step: 2}",
        "communication.overlap.bucket_cap_mb=25",
    )
    folder = lowered(tmp_path / "out", "native", *powersgd)
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    # Past the recipe's own rule.
    plan["recipe"]["communication"]["overlap"]["bucket_cap_mb"] = 0.01
    write_consistently(folder, plan)
    error_file = tmp_path / "error.json"
    finished = torchrun(2, "-m", "gradwire.train", folder, GRADWIRE_ERROR_FILE=str(error_file))
    assert finished.exit_code == 1
    found = json.loads(error_file.read_text(encoding="utf-8"))
    assert found["exit_code"] == 2
    assert re.search(r"powersgd-torch with \d+ buckets on gloo", found["message"])


# Rank 0 holds the store through which ranks find out who is missing.
@pytest.mark.parametrize(("method", "killed"), [("powersgd", 1), ("none", 0)])
def test_killed_rank_is_named_by_every_other(tmp_path: Path, method: str, killed: int) -> None:
    sets = (
        "training.max_steps=1000000",
        "training.num_gpus=3",
        f"communication.compression={{method: {method}, start_step: 0}}",
    )
    folder = lowered(tmp_path / "out", "native", *sets)
    # Without torchrun, whose agent would stop the survivors before they can speak.
    ranks = three_ranks("-m", "gradwire.train", str(folder))
    try:
        assert ranks[0].stderr is not None
        assert any(line.startswith("step 3/") for line in ranks[0].stderr)
        ranks[killed].send_signal(signal.SIGKILL)
        for rank, process in enumerate(ranks):
            if rank != killed:
                _, errors = process.communicate(timeout=120)
                assert process.returncode == 1, errors
                assert f"gradwire: rank {rank}: " in errors
                assert f"rank {killed} has died" in errors
                assert "Traceback" not in errors
    finally:
        for process in ranks:
            process.kill()
            process.communicate()


def test_dead_rank_is_named_after_the_holder_of_the_store_has_left() -> None:
    ranks = three_ranks("-m", "tests.distributed.asks_last")
    try:
        said = [process.communicate(timeout=120)[0] for process in ranks]
        assert said == ["rank 0: missing [1]\n", "", "rank 2: missing [1]\n"]
    finally:
        for process in ranks:
            process.kill()
            process.communicate()


def test_port_in_use_is_named(tmp_path: Path) -> None:
    folder = lowered(tmp_path / "out", "native")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        finished = run_words("python", "-m", "gradwire.train", folder, **place)
    assert finished.exit_code == 4
    assert f"127.0.0.1:{port}" in finished.output
    assert "Traceback" not in finished.output


def test_rank_that_is_told_to_stop_stops_at_once(tmp_path: Path) -> None:
    folder = lowered(tmp_path / "out", "native", "training.num_gpus=1", "training.max_steps=1000000")
    rank = subprocess.Popen([sys.executable, "-m", "gradwire.train", str(folder)], stderr=subprocess.PIPE, text=True)
    try:
        assert rank.stderr is not None
        assert any(line.startswith("step 3/") for line in rank.stderr)
        rank.terminate()
        _, errors = rank.communicate(timeout=120)
        assert rank.returncode == 143
        assert "told to stop (SIGTERM)" in errors
    finally:
        rank.kill()
        rank.wait()
        assert rank.stderr is not None
        rank.stderr.close()


def three_ranks(*words: str) -> list[subprocess.Popen[str]]:
    """Start `python *words` as each of three ranks, with no launcher above them."""
    place = {**os.environ, "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [
        subprocess.Popen(
            [sys.executable, *words],
            env={**place, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]


def write_consistently(folder: Path, plan: dict[str, object]) -> None:
    """Write `plan` with the hash of its changed recipe, as if it had been lowered so."""
    import msgspec

    from gradwire.documents.plan_schema import Plan
    from gradwire.plan import recipe_sha256

    plan["recipe_sha256"] = recipe_sha256(msgspec.convert(plan, Plan).recipe)
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
