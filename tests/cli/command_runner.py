"""Runs the command as a real one; what it left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-c", "import sys; from gradwire.cli.main import main; sys.exit(main())")


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a command left: exit code, stdout, stderr."""

    exit_code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


def run_command(words: Sequence[str], *, folder: Path, timeout: float, **variables: str) -> Said:
    """Run the real command in `folder`, with `variables` added to the environment."""
    ended = subprocess.run(
        [*COMMAND, *words],
        cwd=folder,
        env={**os.environ, "COLUMNS": "80", **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    return Said(exit_code=ended.returncode, out=ended.stdout, err=ended.stderr)
