"""The command, run in this process where that is cheap."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gradwire.cli.main import main
from tests.cli.command_runner import Said


@pytest.fixture
def run_here(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Said]:
    """Run a command line in this process, in an empty folder; an exception that is no user's mistake fails the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words: str) -> Said:
        capsys.readouterr()
        try:
            exit_code = main(words)
        except SystemExit as end:
            exit_code = end.code if isinstance(end.code, int) else 1
        captured = capsys.readouterr()
        return Said(exit_code=exit_code, out=captured.out, err=captured.err)

    return run
