"""The environment of a launched run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gradwire.launch.environment import ERROR_FILE_VARIABLE, run_environment
from gradwire.train import failure


def environment_of(shell: dict[str, str], artifact: dict[str, str]) -> dict[str, str]:
    return run_environment(shell, artifact, error_file=Path("/run/error.json"))


def test_leftovers_of_another_job_are_left_out() -> None:
    shell = {"RANK": "3", "WORLD_SIZE": "8", "MASTER_PORT": "1", "ACCELERATE_MIXED_PRECISION": "fp16", "HOME": "/root"}
    environment = environment_of(shell, {})
    assert environment["HOME"] == "/root"
    assert not {"RANK", "WORLD_SIZE", "MASTER_PORT", "ACCELERATE_MIXED_PRECISION"} & environment.keys()


def test_artifact_wins_over_the_shell() -> None:
    assert environment_of({"DS_ACCELERATOR": "cuda"}, {"DS_ACCELERATOR": "cpu"})["DS_ACCELERATOR"] == "cpu"


def test_thread_count_of_the_shell_wins_over_the_artifact() -> None:
    assert environment_of({"OMP_NUM_THREADS": "4"}, {"OMP_NUM_THREADS": "1"})["OMP_NUM_THREADS"] == "4"
    assert environment_of({}, {"OMP_NUM_THREADS": "1"})["OMP_NUM_THREADS"] == "1"


def test_programs_beside_this_python_are_found_first() -> None:
    path = environment_of({"PATH": "/usr/bin"}, {})["PATH"]
    assert path == f"{Path(sys.executable).parent}{os.pathsep}/usr/bin"


def test_error_file_has_the_name_that_training_reads() -> None:
    assert environment_of({}, {})[failure.ERROR_FILE_VARIABLE] == "/run/error.json"
    assert failure.ERROR_FILE_VARIABLE == ERROR_FILE_VARIABLE
