"""Two runs at once never share a default folder, and a refused one leaves none."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradwire.cli.folders import held_folder, reserved_folder
from gradwire.errors import UsageError


def test_reserved_folder_is_no_other_runs_and_goes_when_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with reserved_folder("a") as first, reserved_folder("a") as second:
        assert (first, second) == (Path("runs/a"), Path("runs/a.2"))
        (second / "log").touch()
    assert [path.name for path in Path("runs").iterdir()] == ["a.2"]
    with reserved_folder("a"):
        pass
    (tmp_path / "runs/a.2/log").unlink()
    (tmp_path / "runs/a.2").rmdir()
    with reserved_folder("a"):
        pass
    assert not Path("runs").exists()


def test_a_folder_that_was_named_is_one_runs_at_a_time_and_goes_when_empty(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    with held_folder(folder):
        with pytest.raises(UsageError, match="a/b: another run is going on in it"), held_folder(folder):
            pass
        assert folder.is_dir()
    assert not (tmp_path / "a").exists()
    with held_folder(folder):
        (folder / "log").touch()
    with held_folder(folder):
        pass
    assert (folder / "log").exists()


def test_a_file_is_no_folder_for_a_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "a"):
        with pytest.raises(UsageError, match="is not a folder"), held_folder(folder):
            pass
