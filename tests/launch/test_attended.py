"""Running somebody's command: it comes to its own end, whatever becomes of the watching."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gradwire.launch import attended

WAITS_FOR_A_FILE = """
import pathlib, sys, time
asked, done = map(pathlib.Path, sys.argv[1:])
while not asked.exists():
    time.sleep(0.01)
done.touch()
"""


def test_a_fault_while_it_runs_is_raised_after_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attended, "_TICK_SECONDS", 0.01)
    asked, done = tmp_path / "asked", tmp_path / "done"

    def fail() -> None:
        asked.touch()
        raise LookupError

    with pytest.raises(LookupError):
        attended.run_attended(
            [sys.executable, "-c", WAITS_FOR_A_FILE, str(asked), str(done)], environment=os.environ, every_second=fail
        )
    assert done.exists()
