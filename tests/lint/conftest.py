"""The real libraries, asked through one process for all tests of the linter."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lint.oracle_client import Oracle

_NEEDED = ("torch", "deepspeed", "accelerate", "transformers")


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"asks the real libraries, and {', '.join(missing)} is not installed")
    started = Oracle()
    yield started
    started.close()


@pytest.fixture(scope="session")
def names(oracle: Oracle) -> dict[str, Any]:
    """The names that the installed libraries know."""
    answer = oracle.ask("facts")
    assert answer["ok"], answer
    found: dict[str, Any] = answer["value"]
    return found
