"""Running a written artifact: which files of an earlier run, or of another machine of the job, it touches."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gradwire.artifact import Artifact, write_artifact
from gradwire.errors import RunFailed
from gradwire.launch.job import run_artifact
from tests.lowering.drawing import lowered

LEFT = ("measurement.json", "steps.jsonl", "launch.log", "error.json")


def run_on(node_rank: int, folder: Path, *, code: str = "print('said')") -> None:
    made = lowered("native", device="cpu")
    artifact = Artifact(
        files=made.files, command=(sys.executable, "-c", code), environment=made.environment, report=made.report
    )
    write_artifact(artifact, folder)
    for name in LEFT:
        (folder / name).write_text("of the first machine")
    run_artifact(artifact, folder, shell={}, timeout_seconds=60, echo=None, node_rank=node_rank)


def test_results_of_an_earlier_run_go(tmp_path: Path) -> None:
    run_on(0, tmp_path / "run")
    assert [name for name in LEFT if (tmp_path / "run" / name).exists()] == ["launch.log"]
    assert (tmp_path / "run" / "launch.log").read_text() == "said\n"


def test_another_machine_leaves_what_the_first_one_writes(tmp_path: Path) -> None:
    run_on(3, tmp_path / "run")
    assert {(tmp_path / "run" / name).read_text() for name in LEFT} == {"of the first machine"}
    assert (tmp_path / "run" / "launch-node3.log").read_text() == "said\n"
    assert not (tmp_path / "run" / "error-node3.json").exists()


def test_another_machine_names_its_own_log(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"run/launch-node3\.log"):
        run_on(3, tmp_path / "run", code="raise SystemExit(7)")
