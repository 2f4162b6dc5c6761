"""`gradwire advise` says when compression pays, from figures that are given or measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_runner import Said

Run = Callable[..., Said]

FIGURES: dict[str, Any] = {
    "format_version": 1,
    "device": "cpu",
    "latency_seconds": 1e-4,
    "bytes_per_second": 1.25e6,
    "compute_seconds": 0.05,
    "arithmetic": [
        {"name": "bf16", "seconds_per_byte": 1e-9, "seconds_per_bucket": 1e-4},
        {"name": "powersgd rank 4", "seconds_per_byte": 3e-9, "seconds_per_bucket": 1e-3},
    ],
}


@pytest.fixture
def figures(tmp_path: Path) -> Path:
    path = tmp_path / "figures.json"
    path.write_text(json.dumps(FIGURES))
    return path


def test_a_slow_link_is_advised_to_compress(run_here: Run, figures: Path) -> None:
    line = ("advise", "cpu/ddp", "--num-gpus", "8", "--device", "cpu", "--figures", str(figures))
    document = run_here(*line, "--json").document
    assert document["compress"] is True
    assert document["method"] == "powersgd rank 4"
    assert [method["name"] for method in document["methods"]] == ["bf16", "powersgd rank 4"]
    assert document["methods"][1]["compression"]["method"] == "powersgd"
    assert document["methods"][1]["speedup"] > 5
    text = run_here(*line).out
    assert "At 10 Mb/s: powersgd rank 4" in text.replace("\n", " ")
    assert max(len(each) for each in text.splitlines()) <= 80


def test_a_fast_link_is_advised_not_to(run_here: Run, figures: Path) -> None:
    line = ("advise", "cpu/ddp", "--num-gpus", "8", "--device", "cpu", "--figures", str(figures))
    said = run_here(*line, "--bandwidth", "100000", "--latency", "1e-5")
    assert "Don't compress" in said.out
    assert run_here(*line, "--bandwidth", "100000", "--json").document["compress"] is False


def test_figures_of_another_kind_of_device_are_refused(run_here: Run, figures: Path) -> None:
    said = run_here("advise", "cpu/ddp", "--num-gpus", "8", "--device", "cuda", "--figures", str(figures))
    assert (said.exit_code, said.out) == (2, "")
    assert "was measured on cpu, and the recipe runs on cuda" in said.err


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cpu/ddp --num-gpus 1", "one rank sends nothing"),
        ("cpu/zero2 --num-gpus 2", "under plain DDP only"),
        ("cpu/pipeline --num-gpus 2", "under plain DDP only"),
        ("cpu/ddp --num-gpus 2 --figures none.json", "cannot be read as a figures"),
        ("cpu/ddp --num-gpus 2 --bandwidth 0", "'0' is not a number above 0"),
    ],
)
def test_what_cannot_be_advised_is_a_usage_error(run_here: Run, line: str, expected: str) -> None:
    said = run_here("advise", *line.split(), "--device", "cpu")
    assert (said.exit_code, said.out) == (2, "")
    assert expected in said.err


@pytest.mark.distributed
def test_figures_are_measured_written_and_read_again(run_here: Run, tmp_path: Path) -> None:
    line = ("advise", "cpu/ddp", "--num-gpus", "4", "--device", "cpu", "--json")
    measured = run_here(*line, "--bandwidth", "100", "--out", "measured.json").document
    figures = measured["figures"]
    assert figures["bytes_per_second"] == 100e6 / 8
    assert 0 < figures["latency_seconds"] < 1
    assert 0 < figures["compute_seconds"] < 60
    assert all(each["seconds_per_byte"] < 1e-6 for each in figures["arithmetic"])
    assert len(figures["arithmetic"]) == len(measured["methods"]) >= 6
    again = run_here(*line, "--figures", str(tmp_path / "measured.json")).document
    assert again["methods"] == measured["methods"]
