"""Leaves word of a rank's failure in a file, because torchrun, accelerate and deepspeed turn every exit code into 1."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from gradwire.errors import GradwireError

ERROR_FILE_VARIABLE = "GRADWIRE_ERROR_FILE"
"""Set by `gradwire launch` to the file that the first failing rank writes; `gradwire.launch.diagnose` reads it."""


def record_failure(error: GradwireError, *, environment: Mapping[str, str]) -> None:
    """Write `{"exit_code", "message", "rank"}` of `error` into the file that GRADWIRE_ERROR_FILE names.

    Does nothing without that variable. The first rank to fail keeps the file: its word is the cause, and what
    later ranks say is mostly the echo. The file appears whole or not at all.
    """
    target = environment.get(ERROR_FILE_VARIABLE)
    if not target:
        return
    record = {"exit_code": error.exit_code, "message": str(error), "rank": int(environment.get("RANK", "0"))}
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=Path(target).parent, delete=False) as written:
        json.dump(record, written)
        written.write("\n")
    try:
        os.link(written.name, target)
    except FileExistsError:
        pass
    finally:
        Path(written.name).unlink()
