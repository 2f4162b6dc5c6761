"""The parts that methods are made of keep their promises, in one process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.communication.world import check_names, run_world

CHECKS = Path(__file__).with_name("checks_parts.py")

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def results() -> dict[str, str]:
    return run_world(CHECKS, ranks=1)


@pytest.mark.parametrize("name", [*check_names(CHECKS), "exit codes"])
def test_part(results: dict[str, str], name: str) -> None:
    assert not results[name], results[name]
