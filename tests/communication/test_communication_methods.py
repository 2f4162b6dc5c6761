"""Each method keeps its promises about one bucket, with 2 and with 4 ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.communication.world import check_names, run_world

CHECKS = Path(__file__).with_name("checks_methods.py")

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module", params=[2, 4], ids=["2-ranks", "4-ranks"])
def results(request: pytest.FixtureRequest) -> dict[str, str]:
    return run_world(CHECKS, ranks=request.param)


@pytest.mark.parametrize("name", [*check_names(CHECKS), "exit codes"])
def test_method(results: dict[str, str], name: str) -> None:
    assert not results[name], results[name]
