"""Each method keeps its promises about one bucket over gloo; `test_simulated_ranks.py` has other numbers of ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.communication.world import check_names, run_world

CHECKS = Path(__file__).with_name("checks_methods.py")

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def results() -> dict[str, str]:
    return run_world(CHECKS, ranks=3)


@pytest.mark.parametrize("name", [*check_names(CHECKS), "exit codes"])
def test_method(results: dict[str, str], name: str) -> None:
    assert not results[name], results[name]
