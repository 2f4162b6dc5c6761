"""What a script with a Trainer gets from a lowered recipe, and what it is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gradwire.errors import EnvironmentNotFit, UsageError
from tests.distributed.real_runs import lowered

pytest.importorskip("accelerate", reason="the Trainer needs it")
trainer = pytest.importorskip("gradwire.integrations.trainer", reason="transformers is not installed")


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The arguments set variables; leave none behind."""
    monkeypatch.setattr(os, "environ", os.environ.copy())


def test_the_script_adds_what_the_recipe_leaves_open(tmp_path: Path) -> None:
    folder = lowered(tmp_path / "out", "trainer", "training.num_gpus=1")
    arguments = trainer.training_arguments(folder, logging_steps=7, report_to="none")
    assert arguments.logging_steps == 7
    assert (arguments.learning_rate, arguments.max_steps, arguments.use_cpu) == (3e-3, 10, True)
    assert Path(arguments.output_dir) == folder / "checkpoints"


def test_what_the_recipe_decides_is_not_for_the_script_to_say(tmp_path: Path) -> None:
    folder = lowered(tmp_path / "out", "trainer", "training.num_gpus=1")
    with pytest.raises(UsageError, match=r"learning_rate=0\.1 \(the recipe makes it 0\.003\)"):
        trainer.training_arguments(folder, learning_rate=0.1)
    # Saying the same is no contradiction.
    trainer.training_arguments(folder, learning_rate=3e-3, report_to="none")


def test_an_edited_file_is_refused(tmp_path: Path) -> None:
    folder = lowered(tmp_path / "out", "trainer", "training.num_gpus=1")
    file = folder / "training_arguments.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**document, "max_grad_norm": 5.0, "seed": 3}), encoding="utf-8")
    with pytest.raises(UsageError, match=r"seed and data_seed is \(3, 1\), the plan says \(1, 1\)") as caught:
        trainer.training_arguments(folder, report_to="none")
    assert "max_grad_norm is 5.0, the plan says 1.0" in str(caught.value)


def test_another_number_of_processes_is_refused(tmp_path: Path) -> None:
    folder = lowered(tmp_path / "out", "trainer")
    with pytest.raises(EnvironmentNotFit, match="the plan is for 2 processes, but 1 was started"):
        trainer.training_arguments(folder)


def test_another_backends_folder_is_refused(tmp_path: Path) -> None:
    folder = lowered(tmp_path / "out", "native")
    with pytest.raises(UsageError, match="lower it with --backend trainer"):
        trainer.training_arguments(folder)
