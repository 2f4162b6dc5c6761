"""Two runs at once never share a default folder, and a refused one leaves none."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradwire.cli.folders import reserved_folder


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
