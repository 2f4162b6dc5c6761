"""What a recipe trains in float64, for all tests that hold a backend or a launcher against it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.real_runs import lowered, run_words


@pytest.fixture(scope="session")
def references(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Mapping[str, Sequence[float]]]:
    """Losses and gradient norms of the tiny recipe with each optimizer, in float64 on one process."""
    parent = tmp_path_factory.mktemp("reference")
    optimizers = ("Adam", "AdamW")
    folders = [lowered(parent / name, "native", f"training.optimizer={name}") for name in optimizers]
    finished = run_words(sys.executable, Path(__file__).with_name("reference.py"), *folders)
    finished.check()
    found: list[Any] = json.loads(finished.output.splitlines()[-1])
    return dict(zip(optimizers, found, strict=True))
