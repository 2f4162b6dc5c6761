"""Two recipes, two configurations, or one of each, compared by what they end up with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gradwire.cli.main import main

DS: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 1.0,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2, "overlap_comm": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-4}},
}
YAML = """\
distributed_type: DEEPSPEED
mixed_precision: bf16
num_processes: 4
deepspeed_config: {zero_stage: 2, gradient_accumulation_steps: 2}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds.json").write_text(json.dumps(DS, indent=1))
    (tmp_path / "accelerate.yaml").write_text(YAML)
    return tmp_path


def _diff(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main(["diff", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def _paths(document: dict[str, Any]) -> list[str]:
    return [each["path"] for each in document["differences"]]


def test_two_recipes_differ_by_their_own_keys(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = _diff("zero2", "zero3", capsys=capsys)
    assert code == 1 and not document["equal"]
    assert _paths(document) == ["parallelism.data.strategy"]
    only = document["differences"][0]
    assert (only["a"]["value"], only["b"]["value"]) == ("zero2", "zero3")
    assert only["a"]["file"] == "preset zero2" and only["a"]["line"] > 0
    (folder / "mine.yaml").write_text("extends: zero2\ntraining: {gradient_clip: 0.5, seed: 0}\n")
    code, document = _diff("zero2", "mine.yaml", capsys=capsys)
    assert _paths(document) == ["training.gradient_clip"]
    assert document["differences"][0]["b"]["line"] == 2


def test_the_precision_under_deepspeed_is_compared_where_deepspeed_has_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = {name: value for name, value in DS.items() if name != "optimizer"}
    (folder / "ds.json").write_text(json.dumps(plain | {"zero_optimization": {"stage": 2}}))
    section = "deepspeed_config: {deepspeed_config_file: ds.json}\n"
    (folder / "named.yaml").write_text("distributed_type: DEEPSPEED\nnum_processes: 4\n" + section)
    _, document = _diff("accelerate.yaml", "named.yaml", capsys=capsys)
    assert "mixed_precision" not in _paths(document) and "bf16.enabled" not in _paths(document)
    (folder / "ds.json").write_text(json.dumps(plain | {"bf16": {"enabled": False}}))
    _, document = _diff("accelerate.yaml", "named.yaml", capsys=capsys)
    assert "mixed_precision" not in _paths(document) and "bf16.enabled" in _paths(document)


def test_equal_ends_with_0_however_it_is_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _diff("zero2", "zero2", capsys=capsys) == (0, {
        "a": "zero2", "b": "zero2", "equal": True, "differences": [], "disagreements": []
    })  # fmt: skip
    # Hidden defaults written out, counts as real numbers, comments, and keys that do nothing at stage 2.
    same = {**DS, "zero_optimization": {**DS["zero_optimization"], "reduce_bucket_size": 5e8, "sub_group_size": 7}}
    same["optimizer"] = {"type": "Adam", "params": {"lr": 0.0003, "betas": [0.9, 0.999], "adam_w_mode": True}}
    (folder / "same.json").write_text("// the same\n" + json.dumps(same | {"train_batch_size": 8, "colour": 3}))
    assert _diff("ds.json", "same.json", "--num-processes", "1", capsys=capsys)[0] == 0


def test_two_files_differ_by_effective_value_after_defaults(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = {key: value for key, value in DS.items() if key != "gradient_clipping"}
    (folder / "other.json").write_text(json.dumps({**other, "zero_optimization": {"stage": 2}}, indent=1))
    code, document = _diff("ds.json", "other.json", capsys=capsys)
    assert code == 1 and _paths(document) == ["zero_optimization.overlap_comm"]
    row = document["differences"][0]
    assert (row["a"]["value"], row["a"]["file"], row["b"]["value"], row["b"]["file"]) == (True, "ds.json", False, None)
    assert row["b"]["origin"] == "the default"


def test_a_file_edited_by_hand_is_found_against_its_recipe(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for backend in ("deepspeed", "accelerate"):
        assert main(["lower", "zero2", "--backend", backend, "--out", backend, "--no-reread", "--num-gpus", "4"]) == 0
        assert _diff("zero2", backend, capsys=capsys)[0] == 0
        file = folder / backend / "deepspeed.json"
        file.write_text(file.read_text().replace('"gradient_clipping": 1.0', '"gradient_clipping": 0.25'))
        code, document = _diff("zero2", backend, capsys=capsys)
        assert code == 1 and _paths(document) == ["gradient_clipping"]
        row = document["differences"][0]
        assert row["about"] == "deepspeed" and row["b"]["value"] == 0.25
        assert row["a"]["origin"].startswith("training.gradient_clip, preset ")
        assert row["b"]["file"] == f"{backend}/deepspeed.json"
    code, document = _diff("zero2", "deepspeed/deepspeed.json", capsys=capsys)
    assert code == 1 and _paths(document) == ["gradient_clipping"]


def test_an_accelerate_file_is_compared_with_a_deepspeed_file_by_what_deepspeed_gets(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "ds.json").write_text(json.dumps({**DS, "train_micro_batch_size_per_gpu": 1}))
    code, document = _diff("accelerate.yaml", "ds.json", "--num-processes", "4", capsys=capsys)
    assert code == 1
    assert _paths(document) == ["optimizer.type", "zero_optimization.overlap_comm"]


def test_the_trainers_arguments_are_compared_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["lower", "zero2", "--backend", "trainer", "--out", "out", "--no-reread", "--num-gpus", "2"]
    assert main([*words, "--device", "cuda"]) == 0
    assert _diff("zero2", "out", capsys=capsys)[0] == 0
    file = folder / "out" / "training_arguments.json"
    arguments = json.loads(file.read_text())
    file.write_text(json.dumps({**arguments, "weight_decay": 0.25, "seed": 42}, indent=1))
    code, document = _diff("zero2", "out", capsys=capsys)
    assert code == 1
    assert {("trainer", "weight_decay"), ("trainer", "seed")} <= {
        (each["about"], each["path"]) for each in document["differences"]
    }


def test_two_sources_that_disagree_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "args.json").write_text(
        json.dumps({"per_device_train_batch_size": 3, "bf16": True, "deepspeed": "ds.json"})
    )
    _, document = _diff("ds.json", "ds.json", "--trainer-arguments", "args.json", capsys=capsys)
    assert any("per_device_train_batch_size is 3" in each["message"] for each in document["disagreements"])
    main(["diff", "ds.json", "ds.json", "--trainer-arguments", "args.json"])
    assert "two sources disagree: ds.json:2 " in capsys.readouterr().err


def test_the_text_names_both_values_and_places(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "other.json").write_text(json.dumps({**DS, "gradient_clipping": 2.0}, indent=1))
    assert main(["diff", "ds.json", "other.json"]) == 1
    said = capsys.readouterr()
    assert said.out == (
        "a: ds.json\nb: other.json\ngradient_clipping (deepspeed)\n  a: 1.0  (ds.json:4)\n  b: 2.0  (other.json:4)\n"
    )
    assert said.err == "1 difference between ds.json and other.json\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("absent.json", "ds.json"), "no such file"),
        (("nothing-like-this", "ds.json"), "nothing-like-this"),
        ((".", "ds.json"), "another"),
        (("empty", "ds.json"), "holds no accelerate.yaml, deepspeed.json or training_arguments.json"),
        (("ddp.yaml", "ds.json"), "nothing in common"),
        (("bad.json", "ds.json"), "the program itself refuses"),
        (("broken.yaml", "ds.json"), "broken.yaml"),
    ],
)
def test_what_cannot_be_compared_ends_with_2(
    words: tuple[str, str], why: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "empty").mkdir()
    (folder / "deepspeed.json").write_text("[]")
    (folder / "ddp.yaml").write_text("distributed_type: MULTI_GPU\nnum_processes: 2\n")
    (folder / "bad.json").write_text(json.dumps({**DS, "zero_optimization": {"stage": 9}}))
    (folder / "broken.yaml").write_text("a: [1\n")
    assert main(["diff", *words]) == 2
    said = capsys.readouterr()
    assert not said.out
    if why != "another":
        assert why in said.err
