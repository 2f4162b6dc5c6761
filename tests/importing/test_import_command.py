"""The verb: where the recipe and the report go, exit codes, and input that is no configuration."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gradwire.cli.main import main
from tests.importing.importing import SOUND

ALIAS_BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{last}'] * 9)}]\n" for last, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds.json").write_text(json.dumps(SOUND))
    return tmp_path


def test_the_recipe_goes_to_stdout_and_the_report_to_stderr(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "ds.json", "--num-processes", "2"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("# yaml-language-server: $schema=")
    assert "batch_size_per_gpu: 4" in said.out
    assert "hidden defaults, made explicit:" in said.err
    assert "lower it: gradwire lower RECIPE --backend deepspeed --device cuda --out DIR" in said.err


def test_what_was_imported_is_valid_and_lowers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "ds.json", "--num-processes", "2", "--out", "mine.yaml"]) == 0
    assert not capsys.readouterr().out
    assert main(["validate", "mine.yaml"]) == 0
    assert main(["lower", "mine.yaml", "--backend", "deepspeed", "--device", "cuda", "--dry-run"]) == 0
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_a_file_is_written_over_only_with_force(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "mine.yaml").write_text("precious")
    assert main(["import", "ds.json", "--out", "mine.yaml"]) == 2
    assert "--force" in capsys.readouterr().err
    assert (folder / "mine.yaml").read_text() == "precious"
    assert main(["import", "ds.json", "--out", "mine.yaml", "--force"]) == 0
    assert "precious" not in (folder / "mine.yaml").read_text()
    assert main(["import", "ds.json", "--out", "absent/mine.yaml"]) == 2
    assert main(["import", "ds.json", "--out", ".", "--force"]) == 2


def test_json_carries_the_recipe_and_every_entry(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "ds.json", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"out", "recipe", "sources", "entries", "assumptions", "lower"}
    assert {"outcome", "path", "value", "file", "line", "column", "into", "note"} == set(document["entries"][0])
    assert document["lower"][:3] == ["gradwire", "lower", "RECIPE"]


def test_a_refused_key_ends_with_3_and_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "sum.json").write_text(json.dumps({**SOUND, "gradient_allreduce_op": "sum"}))
    assert main(["import", "sum.json", "--out", "mine.yaml"]) == 3
    assert "gradient_allreduce_op = 'sum'" in capsys.readouterr().err
    assert not (folder / "mine.yaml").exists()
    assert main(["import", "sum.json", "--json"]) == 3
    refused = json.loads(capsys.readouterr().out)["error"]["refused"]
    assert len(refused) == 1 and "gradient_allreduce_op" in refused[0]["message"]
    assert main(["import", "sum.json", "--out", "mine.yaml", "--allow-lossy"]) == 0
    assert "refused, left out: 1" in capsys.readouterr().err


def test_a_deepspeed_file_that_another_names_is_found(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "accelerate.yaml").write_text(
        "distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config: {deepspeed_config_file: ds.json}\n"
    )
    assert main(["import", "accelerate.yaml"]) == 0
    assert "num_gpus: 4" in capsys.readouterr().out
    assert main(["import", "ds.json", "ds.json", "accelerate.yaml"]) == 0
    (folder / "other.json").write_text(json.dumps(SOUND))
    capsys.readouterr()
    assert main(["import", "ds.json", "other.json"]) == 2
    assert "both of kind deepspeed" in capsys.readouterr().err


def _file(name: str, content: bytes) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        (folder / name).write_bytes(content)
        return name

    return make


def _folder(folder: Path) -> str:
    (folder / "configs").mkdir()
    return "configs"


def _pipe(folder: Path) -> str:
    os.mkfifo(folder / "pipe.json")
    return "pipe.json"


def _locked(folder: Path) -> str:
    (folder / "locked.json").write_text("{}")
    (folder / "locked.json").chmod(0)
    if os.access(folder / "locked.json", os.R_OK):
        pytest.skip("this user may read every file")
    return "locked.json"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_file("big.json", b'{"a": "' + b"x" * (50 * 1024 * 1024) + b'"}'), "larger than 1024 KiB"),
        (_file("deep.json", b'{"a":' * 5000 + b"1" + b"}" * 5000), "nested deeper than 64 levels"),
        (_file("bomb.yaml", ALIAS_BOMB.encode()), "more than 20000 values, aliases counted"),
        (_file("latin.json", b'{"train_batch_size": 1, "x": "\xe9"}'), "0xe9 is not UTF-8"),
        (_file("utf16.json", "{}".encode("utf-16")), "is UTF-16 text"),
        (_file("list.json", b"[1, 2]"), "no mapping of keys to values"),
        (_file("empty.yaml", b""), "the file is empty"),
        (_file("broken.yaml", b"a: [1, 2\nb: 3\n"), "not valid YAML"),
        (_file("tab.yaml", b"a:\n\tb: 1\n"), "a tab stands where YAML wants spaces"),
        (_file("tag.yaml", b"a: !!python/object/apply:os.system ['true']\n"), "not valid YAML"),
        (_folder, "is a folder"),
        (_pipe, "is not a regular file"),
        (_locked, "no permission to read it"),
        (lambda _folder: "absent.json", "no such file"),
    ],
)
def test_what_is_no_configuration_is_refused(
    make: Callable[[Path], str], why: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = make(folder)
    assert main(["import", name, "--out", "mine.yaml"]) == 2
    said = capsys.readouterr()
    assert why in said.err and name in said.err and not said.out
    assert not (folder / "mine.yaml").exists()


@pytest.mark.parametrize("prefix", [b"\xef\xbb\xbf", b""])
def test_a_mark_and_carriage_returns_do_no_harm(
    prefix: bytes, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '# top\n{\n  // four\n  "train_micro_batch_size_per_gpu": 4, # fits\n}\n'.replace("\n", "\r\n")
    (folder / "windows.json").write_bytes(prefix + text.encode())
    assert main(["import", "windows.json"]) == 0
    out = capsys.readouterr().out
    assert "  # four\n  batch_size_per_gpu: 4  # fits\n" in out and "\r" not in out
