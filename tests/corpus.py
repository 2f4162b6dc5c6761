"""Real public files, and what the real libraries were seen to do with them.

The files are other people's, so they are not in this repository: GRADWIRE_CORPUS names a folder with them and a
RESULTS.tsv (columns file, verdict, ...; verdict ok, ok-but-silent, error, config-ok-later-fails or plugin-error).
"""

from __future__ import annotations

import csv
import os
from functools import cache
from pathlib import Path

import pytest

NEEDED = pytest.mark.skipif(
    not os.environ.get("GRADWIRE_CORPUS"),
    reason="real files are not shipped; set GRADWIRE_CORPUS to a folder of them",
)


def folder() -> Path:
    """Return the folder that the files are in."""
    return Path(os.environ["GRADWIRE_CORPUS"])


@cache
def results() -> tuple[dict[str, str], ...]:
    """Return one row for each file."""
    with (folder() / "RESULTS.tsv").open(encoding="utf-8", newline="") as file:
        rows = tuple(csv.DictReader(file, delimiter="\t"))
    assert len(rows) > 100
    return rows
