"""The generated files really start the planned number of processes, with a script that knows nothing of Gradwire."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gradwire.artifact import write_artifact
from gradwire.launch.probe import free_port
from gradwire.plan import Backend
from tests.lowering.drawing import STRATEGY, lowered

pytestmark = pytest.mark.distributed

pytest.importorskip("accelerate", reason="its launcher is started")
pytest.importorskip("deepspeed", reason="its launcher is started")

SCRIPT = """
import json, os, sys
from pathlib import Path
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT", "ACCELERATE_DEEPSPEED_CONFIG_FILE")
found = {name: os.environ.get(name) for name in names} | {"arguments": sys.argv[2:]}
if "RANK" in found and "accelerator" in sys.argv:
    from accelerate import Accelerator
    found["processes"] = Accelerator().num_processes
Path(sys.argv[1], f"rank{found['RANK']}.json").write_text(json.dumps(found))
"""


def start(command: list[str], folder: Path, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        env={**os.environ, **more},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> None:
    try:
        said, _ = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.terminate()
        raise
    assert process.returncode == 0, said


def ranks(folder: Path) -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in folder.glob("rank*.json")]
    return sorted(found, key=lambda rank: int(rank["RANK"]))


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "a script.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.parametrize("backend", ["native", "accelerate", "deepspeed"])
def test_the_launch_script_starts_every_rank_from_anywhere(backend: Backend, tmp_path: Path, script: Path) -> None:
    seen = tmp_path / "seen"
    seen.mkdir()
    write_artifact(lowered(backend, device="cpu", program=(str(script), str(seen))), tmp_path / "out")
    # The Accelerator itself is asked: N processes that each believe to be alone would not be noticed otherwise.
    word = ["accelerator"] if backend == "accelerate" else []
    finish(start([str(tmp_path / "out" / "launch.sh"), *word, "two words"], Path("/")))
    found = ranks(seen)
    assert [(rank["RANK"], rank["WORLD_SIZE"]) for rank in found] == [("0", "2"), ("1", "2")]
    assert all(rank["arguments"] == [*word, "two words"] for rank in found)
    if backend == "accelerate":
        assert [rank["processes"] for rank in found] == [2, 2]


def test_a_person_needs_no_environment_to_start_a_zero_config_in_the_folder_of_lowering(
    tmp_path: Path, script: Path
) -> None:
    artifact = lowered("accelerate", {STRATEGY: "zero2"}, device="cpu", out="runs/zero")
    write_artifact(artifact, tmp_path / "runs" / "zero")
    command = ["accelerate", "launch", "--config_file", "runs/zero/accelerate.yaml", str(script), str(tmp_path)]
    finish(start(command, tmp_path))
    found = ranks(tmp_path)
    assert len(found) == 2
    assert all(rank["ACCELERATE_DEEPSPEED_CONFIG_FILE"] == "runs/zero/deepspeed.json" for rank in found)
    assert (tmp_path / found[0]["ACCELERATE_DEEPSPEED_CONFIG_FILE"]).is_file()


def test_two_machines_meet_by_node_rank(tmp_path: Path, script: Path) -> None:
    # Both launchers run here, each believing to be one of two machines; deepspeed's has the most to get wrong.
    artifact = lowered("deepspeed", device="cpu", num_nodes=2, program=(str(script), str(tmp_path)))
    write_artifact(artifact, tmp_path / "out")
    port = str(free_port())
    launch = [str(tmp_path / "out" / "launch.sh")]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    nodes = [start(launch, tmp_path, NODE_RANK=str(rank), **meeting) for rank in range(2)]
    for node in nodes:
        finish(node)
    assert [(rank["RANK"], rank["WORLD_SIZE"], rank["LOCAL_RANK"]) for rank in ranks(tmp_path)] == [
        ("0", "2", "0"),
        ("1", "2", "0"),
    ]


# Whether the weights differ before the first step from those the model was built with, as JSON.
MOVED = """
import json, os, sys
import torch
import deepspeed
deepspeed.init_distributed("gloo", verbose=False)
model = torch.nn.Linear(4, 4)
before = model.weight.detach().clone()
config = json.load(open(sys.argv[1])) | json.loads(sys.argv[2])
engine, *_ = deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())
master = engine.basic_optimizer.param_groups[0]["params"][0].detach()
moved = bool((master - before).abs().max() > 0.01)
open(sys.argv[3], "w").write(json.dumps(moved))
torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("override", "moves"),
    [({}, False), ({"torch_autocast": {"enabled": False}, "bf16": {"enabled": True}}, True)],
    ids=["as lowered", "with bf16.enabled"],
)
def test_no_weight_moves_before_the_first_step_of_mixed_precision_without_zero(
    tmp_path: Path, override: dict[str, Any], moves: bool
) -> None:
    values = {
        "training.num_gpus": 1,
        "training.precision": "bf16-mixed",
        "training.optimizer": "Adam",
        "training.weight_decay": 0.1,
        "training.learning_rate": 0.1,
    }
    write_artifact(lowered("deepspeed", values, device="cpu"), tmp_path / "out")
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    place |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "DS_ACCELERATOR": "cpu"}
    answer = tmp_path / "moved.json"
    config = str(tmp_path / "out" / "deepspeed.json")
    finish(start([sys.executable, "-c", MOVED, config, json.dumps(override), str(answer)], tmp_path, **place))
    assert json.loads(answer.read_text()) is moves
