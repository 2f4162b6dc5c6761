"""parity: real runs on two backends, the exit codes, and what lower and explain make of the document."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command_runner import Said, run_command

Run = Callable[..., Said]

SCHEDULE = ("--set", "training.scheduler={type: linear, warmup_steps: 2}")
LINE = ("parity", "cpu/ddp", "--backends", "native,trainer", "--num-gpus", "1", "--steps", "3", *SCHEDULE)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Said]:
    folder = tmp_path_factory.mktemp("parity")
    said = run_command([*LINE, "--json"], folder=folder, timeout=240)
    return folder, said


@pytest.mark.distributed
def test_backends_train_the_same(finished: tuple[Path, Said]) -> None:
    folder, said = finished
    assert said.exit_code == 0, said.err
    document = said.document
    assert document == json.loads((folder / "runs/parity-cpu-ddp/parity.json").read_text())
    assert (document["verdict"], document["steps"], document["reference"]) == ("same", 3, "native")
    [pairing] = document["comparisons"]
    assert [quantity["is_same"] for quantity in pairing["quantities"]] == [True] * 6
    # The beginning of the whole run's learning rates, not those of a run of three steps.
    measurement = json.loads((folder / "runs/parity-cpu-ddp/native/measurement.json").read_text())
    plan = json.loads((folder / "runs/parity-cpu-ddp/native/plan.json").read_text())
    assert plan["recipe"]["training"]["scheduler"]["total_steps"] == 30
    assert measurement["learning_rates"] == [0.0, 0.001, 0.002]


@pytest.mark.distributed
def test_lower_and_explain_cite_what_was_found(
    finished: tuple[Path, Said], run_here: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = finished
    monkeypatch.chdir(folder)
    line = ["lower", "cpu/ddp", "--backend", "native", "--num-gpus", "1", *SCHEDULE, "--no-reread"]
    said = run_here(*line, "--out", "out")
    assert "trains the same as trainer over 3 steps" in said.out
    evidence = json.loads((folder / "out/lowering.json").read_text())["parity"]["evidence"]
    assert (evidence["file"], evidence["is_same"]) == ("runs/parity-cpu-ddp/parity.json", True)
    assert evidence["versions"]["torch"]
    # Another size, another recipe, another backend: nothing is known.
    for other in (["--num-gpus", "2"], ["--set", "training.seed=9"], ["--backend", "deepspeed"]):
        said = run_here(*line, *other, "--out", "other")
        assert "not compared with other backends here: `gradwire parity cpu/ddp" in " ".join(said.out.split())
    said = run_here("explain", "cpu/ddp", "training.gradient_clip", "--num-gpus", "1", *SCHEDULE)
    assert "compared    native trains the same as trainer over 3 steps" in said.out


@pytest.mark.distributed
def test_what_differs_is_named_and_the_exit_code_says_so(tmp_path: Path, run_here: Run) -> None:
    # ZeRO casts the whole model to bf16; native's nearest thing, one process of fully_shard, keeps fp32 gradients.
    words = ["parity", "cpu/zero1", "--backends", "native,deepspeed", "--num-gpus", "1", "--steps", "2"]
    words += ["--set", "training.precision=bf16-mixed", "--set", "training.gradient_accumulation=2", "--allow-lossy"]
    words += ["--loss-tolerance", "1e-12", "--norm-tolerance", "1e-12"]
    said = run_command(words, folder=tmp_path, timeout=240)
    assert said.exit_code == 5, said.out + said.err
    assert "deepspeed differs from native first in step 1: " in " ".join(said.out.split())
    assert "points to: " in said.out
    assert "NOT the same over 2 steps: deepspeed against native" in said.out
    [native, deepspeed] = json.loads((tmp_path / "runs/parity-cpu-zero1/parity.json").read_text())["runs"]
    assert (native["is_lossy"], deepspeed["is_lossy"]) == (True, False)
    # A run of nearest values proves nothing of the recipe.
    line = ["lower", "cpu/zero1", "--backend", "deepspeed", *words[4:6], *words[8:12], "--out", "out", "--no-reread"]
    assert "not compared with other backends here" in run_here(*line).out


def test_a_backend_asked_for_by_name_must_be_able_to(run_here: Run, tmp_path: Path) -> None:
    said = run_here("parity", "cpu/zero2", "--backends", "native,deepspeed", "--num-gpus", "2")
    assert said.exit_code == 3
    assert "parallelism.data.strategy" in said.err
    assert not (tmp_path / "runs").exists()


def test_one_backend_alone_is_refused_with_the_reasons(run_here: Run) -> None:
    said = run_here("parity", "cpu/pipeline", "--num-gpus", "2")
    assert said.exit_code == 2
    assert "parity needs two backends, and 1 can run cpu/pipeline here" in said.err
    assert "deepspeed: parallelism.pipeline" in said.err


def test_a_machine_that_is_not_fit_for_any_backend_is_no_mistake_of_the_recipe(run_here: Run) -> None:
    said = run_here("parity", "cpu/ddp", "--num-gpus", "100000")
    assert said.exit_code == 4
    assert "parity needs two backends, and 0 can run cpu/ddp here" in said.err


def test_a_backend_named_twice_is_refused(run_here: Run) -> None:
    assert "names one twice" in run_here("parity", "cpu/ddp", "--backends", "native,native").err
