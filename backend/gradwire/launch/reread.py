"""Has the target's own loader read the files back, in a process of its own, and returns what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gradwire.documents.lowering_schema import Reread
from gradwire.errors import EnvironmentNotFit, RunFailed

_TIMEOUT_SECONDS = 180.0


def reread(folder: Path, artifact_environment: Mapping[str, str]) -> Reread:
    """Return what the loader of the target library says of the files in `folder`; skipped where it is not installed.

    Raises RunFailed where the loader rejects the files or does not finish.
    """
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "gradwire.train.reread", str(folder)],
            env={**os.environ, **artifact_environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise RunFailed(f"{folder}: the target's loader did not finish in {_TIMEOUT_SECONDS:g} s") from None
    said = ended.stderr.strip().splitlines()
    if ended.returncode == EnvironmentNotFit.exit_code:
        reason = said[-1].removeprefix("gradwire: ") if said else "the target library is not installed"
        return Reread(status="skipped", loader=None, reason=reason, values=[])
    try:
        return msgspec.json.decode(ended.stdout, type=Reread)
    except msgspec.DecodeError:
        tail = "\n".join(f"    {line}" for line in said[-6:])
        raise RunFailed(
            f"{folder}: the target's loader rejects the files (exit code {ended.returncode})\n{tail}"
        ) from None
