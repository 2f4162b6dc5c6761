"""What the installed libraries know, asked once for all tests of the linter."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lint.oracle_client import Oracle


@pytest.fixture(scope="session")
def names(oracle: Oracle) -> dict[str, Any]:
    """The names that the installed libraries know."""
    answer = oracle.ask("facts")
    assert answer["ok"], answer
    found: dict[str, Any] = answer["value"]
    return found
