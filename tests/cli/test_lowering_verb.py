"""lower: files, command, re-read; a dry run touches no disk."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gradwire.documents.lowering_schema import Reread, RereadValue
from tests.cli.command_runner import Said

Run = Callable[..., Said]


def test_dry_run_prints_files_and_command_and_touches_no_disk(run_here: Run, tmp_path: Path) -> None:
    said = run_here("lower", "h100-8-overlap", "--backend", "accelerate", "--dry-run")
    assert said.exit_code == 0
    assert "\n--- accelerate.yaml\n" in said.out
    assert "accelerate launch --config_file out/accelerate.yaml -m gradwire.train out/plan.json" in said.out
    assert list(tmp_path.iterdir()) == []


def test_dry_run_in_json_has_the_contents(run_here: Run) -> None:
    document = run_here("lower", "zero2", "--backend", "deepspeed", "--dry-run", "--json").document
    assert document["folder"] is None
    assert json.loads(document["files"]["deepspeed.json"])["zero_optimization"]["stage"] == 2
    assert document["report"]["reread"]["status"] == "skipped"


def test_written_lowering_is_read_back_and_reported(run_here: Run, tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    said = run_here("lower", "cpu/ddp", "--backend", "native", "--num-gpus", "2", "--out", "out", "--json")
    assert said.exit_code == 0, said.err
    document = said.document
    written = json.loads((tmp_path / "out" / "lowering.json").read_text())
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == document["files"] == written["files"]
    assert document["report"] == written
    assert written["reread"]["status"] in ("equal", "skipped")
    assert str(tmp_path) not in (tmp_path / "out" / "lowering.json").read_text()


def test_value_that_is_read_back_differently_is_a_failure(
    run_here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = RereadValue(name="gradient_clipping", planned=1.0, loaded=0.5, equal=False)
    different = Reread(status="different", loader="a loader", reason=None, values=[value])
    monkeypatch.setattr("gradwire.launch.reread.reread", lambda _folder, _environment: different)
    said = run_here("lower", "cpu/ddp", "--backend", "native", "--out", "out")
    assert said.exit_code == 1
    assert "the loader reads other values than planned: gradient_clipping is 0.5, not 1.0" in said.err
    assert json.loads((tmp_path / "out" / "lowering.json").read_text())["reread"]["status"] == "different"


@pytest.mark.parametrize("backend", ["native", "accelerate", "deepspeed", "trainer"])
def test_lowering_works_without_the_libraries_and_says_that_nothing_was_read_back(
    run_here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    hidden = tmp_path / "hidden"
    for library in ("torch", "accelerate", "deepspeed", "transformers", "numpy", "psutil"):
        (hidden / library).mkdir(parents=True)
        text = f"raise ModuleNotFoundError(\"No module named '{library}'\", name='{library}')\n"
        (hidden / library / "__init__.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(hidden), os.environ.get("PYTHONPATH", "")]))
    said = run_here("lower", "cpu/ddp", "--backend", backend, "--out", "out", "--json")
    assert said.exit_code == 0, said.err
    reread = said.document["report"]["reread"]
    assert (reread["status"], "is not installed here" in reread["reason"]) == ("skipped", True)


def test_lossy_lowering_says_what_was_lost(run_here: Run) -> None:
    said = run_here("lower", "cpu/powersgd", "--backend", "deepspeed", "--allow-lossy", "--dry-run")
    assert said.exit_code == 0
    assert "refused: communication.compression.method=powersgd" in said.out
    assert "DeepSpeed reduces gradients itself, without DDP's hooks" in said.out


def test_every_field_is_shown_on_demand(run_here: Run) -> None:
    line = ("lower", "cpu/zero1", "--backend", "deepspeed", "--dry-run")
    assert "training.learning_rate = 0.002: exact" not in run_here(*line).out
    said = run_here(*line, "--verbose")
    assert "training.learning_rate = 0.002: exact by deepspeed.json" in said.out.replace("\n      ", " ")
    assert "overwritten:\n" in said.out


def test_own_script_ends_the_command(run_here: Run) -> None:
    line = "lower cpu/ddp --backend accelerate --dry-run --json -- train.py --json --epochs 2"
    assert run_here(*line.split()).document["command"][-4:] == ["train.py", "--json", "--epochs", "2"]


@pytest.mark.parametrize(
    ("backend", "words", "said"),
    [
        ("native", "--resume nothing", "nothing: no such folder; --resume names"),
        ("deepspeed", "--save-every 3", "Gradwire saves the runs of its native backend"),
        ("native", "--save-every 3 -- train.py", "in a script of your own use accelerator.save_state"),
    ],
)
def test_checkpoints_that_cannot_be_are_refused_before_the_start(
    run_here: Run, backend: str, words: str, said: str
) -> None:
    refused = run_here("launch", "cpu/ddp", "--backend", backend, *words.split())
    assert refused.exit_code == 2
    assert said in refused.err


@pytest.mark.parametrize("backend", ["native", "accelerate", "deepspeed"])
def test_several_machines_have_rank_and_meeting_point(run_here: Run, backend: str) -> None:
    line = f"lower zero1 --backend {backend} --dry-run --json --num-nodes 2 --node-rank 1 --rdzv node0:29511"
    if backend == "native":
        line = line.replace("zero1", "h100-8-overlap")
    document = run_here(*line.split()).document
    assert document["world"]["processes_per_node"] == 4
    everything = " ".join(document["command"]) + " ".join(document["files"].values())
    assert "node0" in everything
    assert "29511" in everything


@pytest.mark.parametrize(
    ("variable", "options", "expected"), [("5", "", "5"), ("5", "--node-rank 2", "2"), ("none", "", "0")]
)
def test_a_launch_on_several_machines_takes_its_rank_from_slurm(
    run_here: Run, monkeypatch: pytest.MonkeyPatch, variable: str, options: str, expected: str
) -> None:
    monkeypatch.setenv("SLURM_NODEID", variable)
    line = f"launch zero1 --backend native --allow-lossy --dry-run --json --num-nodes 8 --rdzv node0:29511 {options}"
    command = run_here(*line.split()).document["command"]
    assert command[command.index("--node-rank") + 1] == expected


def test_several_machines_are_told_what_each_runs(run_here: Run) -> None:
    line = "lower zero1 --backend deepspeed --no-reread --out out --num-gpus 64 --num-nodes 8 --rdzv node0:29511"
    said = run_here(*line.split()).out
    assert "run it on each of the 8 machines, with its own number:\n  NODE_RANK=0 out/launch.sh " in said
    assert "or, under Slurm: srun out/launch.sh\n" in said


def test_fewer_gpus_on_each_machine_than_usual_are_pointed_out_unless_asked_for(run_here: Run) -> None:
    line = "lower zero1 --backend accelerate --dry-run --num-nodes 8 --rdzv node0:29511"
    assert "8 GPUs, which are 1 on each of 8 machines; --num-gpus 64 takes 8 on each" in run_here(*line.split()).err
    assert run_here(*line.split(), "--num-gpus", "8").err == ""
