"""Whatever stands in a file or after `--set`, it is read or refused; nothing else is raised."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradwire.errors import UsageError
from gradwire.recipe import load_recipe, parse_set

relaxed = settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)

PIECES = [
    "training", "model", "extends", "seed", "cpu/ddp", ":", ": ", "\n", "\n  ", "\n    ", "- ", "[", "]", "{", "}", ",",
    "&a ", "*a", "<<", "!", "!!str ", "|\n", ">-\n", "'", '"', "#", " #", "---\n", "...\n", "%YAML 1.2\n", "? ", "1",
    "1e9", ".nan", "true", "null", "~", "\t", "\r\n", "\\u", "\\ud83d", "\ufeff", "é", "=", "[training]\n",
    "2024-01-01", "@", "`",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("read")


def load(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    try:
        load_recipe(str(path))
    except UsageError as error:
        assert str(error).startswith(str(path))


@relaxed
@given(content=st.binary(max_size=60))
def test_bytes_are_read_or_refused(folder: Path, content: bytes) -> None:
    load(folder / "bytes.yaml", content)
    load(folder / "bytes.toml", content)


@relaxed
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=30))
def test_pieces_of_yaml_and_toml_are_read_or_refused(folder: Path, pieces: list[str]) -> None:
    content = "".join(pieces).encode()
    load(folder / "pieces.yaml", content)
    load(folder / "pieces.toml", content)


@relaxed
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=12))
def test_any_override_is_taken_or_refused(pieces: list[str]) -> None:
    text = "".join(pieces)
    for argument in (text, f"training.seed={text}", f"backends.deepspeed.x={text}"):
        try:
            load_recipe("cpu/ddp", overrides=[parse_set(argument)])
        except UsageError as error:
            assert "--set" in str(error)
