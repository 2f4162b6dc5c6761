"""The worker's command line refuses what it cannot use: a message, the exit code, no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from gradwire.documents.recipe_schema import Model, Recipe, Training
from gradwire.plan import Backend, settle


def write_plan(folder: Path, backend: Backend = "native", *, num_gpus: int = 1) -> Path:
    model = Model(family="gpt2", hidden_size=8, layers=1, attention_heads=1, sequence_length=8)
    recipe = Recipe(model=model, training=Training(num_gpus=num_gpus))
    plan = settle(recipe, recipe_name="test", backend=backend, device="cpu")
    (folder / "plan.json").write_bytes(msgspec.json.encode(plan))
    return folder / "plan.json"


def train(*arguments: str | Path, hidden: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run the worker where the packages in `hidden` cannot be found."""
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({list(hidden)!r})); "
        "from gradwire.train.main import main; main(sys.argv[1:])"
    )
    words = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def check_refused(finished: subprocess.CompletedProcess[str], exit_code: int, *parts: str) -> None:
    assert finished.returncode == exit_code, finished.stderr
    assert finished.stderr.startswith("gradwire: ")
    assert "Traceback" not in finished.stderr
    for part in parts:
        assert part in finished.stderr


def test_missing_plan(tmp_path: Path) -> None:
    check_refused(train(tmp_path), 2, "plan.json: no such file", "gradwire lower")


@pytest.mark.parametrize("content", ["", "{", "[]", "\0", "null", "[" * 100_000])
def test_plan_that_is_no_plan(tmp_path: Path, content: str) -> None:
    (tmp_path / "plan.json").write_text(content)
    check_refused(train(tmp_path), 2, "plan.json")


def test_plan_with_every_violation(tmp_path: Path) -> None:
    document = json.loads(write_plan(tmp_path).read_bytes())
    document["backend"] = "horovod"
    document["world"]["world_size"] = "one"
    (tmp_path / "plan.json").write_text(json.dumps(document))
    check_refused(train(tmp_path), 2, "'horovod'", "'one'")


def test_plan_that_was_edited(tmp_path: Path) -> None:
    document = json.loads(write_plan(tmp_path).read_bytes())
    document["batch"]["global_batch_size"] = 64
    (tmp_path / "plan.json").write_text(json.dumps(document))
    check_refused(train(tmp_path), 2, "the plan contradicts its own recipe in batch")


@pytest.mark.parametrize(
    ("backend", "hidden", "extra"),
    [
        ("native", ["torch"], "gradwire[native]"),
        ("accelerate", ["accelerate"], "gradwire[accelerate]"),
        ("deepspeed", ["deepspeed", "torch"], "gradwire[deepspeed]"),
    ],
)
def test_missing_package_names_the_extra(tmp_path: Path, backend: Backend, hidden: list[str], extra: str) -> None:
    finished = train(write_plan(tmp_path, backend), hidden=hidden)
    check_refused(finished, 4, f"pip install '{extra}'", *hidden)


def test_recipe_without_a_model(tmp_path: Path) -> None:
    plan = settle(Recipe(), recipe_name="test", backend="native", device="cpu")
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode(plan))
    check_refused(train(tmp_path), 2, "has no `model`", "launch your own script")


def test_missing_text(tmp_path: Path) -> None:
    document = json.loads(write_plan(tmp_path).read_bytes())
    document["recipe"]["data"]["path"] = str(tmp_path / "nowhere")
    write_rehashed(tmp_path, document)
    check_refused(train(tmp_path), 2, "data.path", "nowhere", "No such file")


def write_rehashed(folder: Path, document: dict[str, object]) -> None:
    recipe = msgspec.convert(document["recipe"], Recipe)
    plan = settle(recipe, recipe_name="test", backend="native", device="cpu")
    (folder / "plan.json").write_bytes(msgspec.json.encode(plan))


def test_a_measured_peak_that_is_none_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plan(tmp_path)
    monkeypatch.setenv("GRADWIRE_PEAK", str(tmp_path / "none.json"))
    check_refused(train(tmp_path), 2, "none.json: cannot be read as a peak: No such file")
    (tmp_path / "peak.json").write_text('{"format_version": 1}')
    monkeypatch.setenv("GRADWIRE_PEAK", str(tmp_path / "peak.json"))
    check_refused(train(tmp_path), 2, "peak.json", "'rates' is a required property")
