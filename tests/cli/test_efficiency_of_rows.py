"""`gradwire efficiency FILE`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command_runner import Said

Run = Callable[..., Said]
ROWS = "n,tokens_per_second,run\n1,100,1\n4,370,1\n1,102,2\n4,372,2\n1,101,3\n4,371,3\n8,400,1\n"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text(ROWS)
    return path


def test_every_size_is_graded_with_its_interval(run_here: Run, rows: Path) -> None:
    said = run_here("efficiency", str(rows))
    assert said.exit_code == 0
    lines = [line.split() for line in said.out.splitlines()]
    assert ["4", "371", "3.67x", "91.8", "%", "90.2", "to", "93.5", "%", "good"] in lines
    assert ["8", "400", "3.96x", "49.5", "%", "-", "poor*"] in lines
    assert "gustafson (serial share" in said.out
    assert "latency-bandwidth: not fitted: 3 parameters need 4 sizes or more, and 3 could be used" in " ".join(
        said.out.split()
    )
    assert "(weak scaling, as --scaling says: the batch per GPU is taken to be fixed)" in " ".join(said.out.split())
    assert max(len(line) for line in said.out.splitlines()) <= 80


def test_a_prediction_has_its_interval_and_one_size_has_none(run_here: Run, rows: Path) -> None:
    said = " ".join(run_here("efficiency", str(rows)).out.split())
    assert "of ideal; 95 % from" in said
    assert "if the law holds)" in said
    rows.write_text("GPUs,tok/s\n8,12.3k\n", encoding="utf-8")
    said = " ".join(run_here("efficiency", str(rows)).out.split())
    assert "only 8 GPUs were measured, so there is nothing to hold against each other" in said
    assert "not fitted" not in said


def test_the_same_as_json(run_here: Run, rows: Path) -> None:
    document = run_here("efficiency", str(rows), "--json", "--scaling", "strong").document
    (curve,) = document["curves"]
    assert [(point["num_gpus"], point["grade"], point["grade_basis"]) for point in curve["points"]] == [
        (1, None, None),
        (4, "good", "interval"),
        (8, "poor", "one-run"),
    ]
    assert curve["points"][1]["interval"]["method"] == "paired-t"
    assert [fit["law"] for fit in curve["fits"] if fit["suits"]] == ["amdahl", "latency-bandwidth"]
    assert document["met"] is True


def test_a_threshold_that_was_not_met_names_the_sizes(run_here: Run, rows: Path) -> None:
    said = run_here("efficiency", str(rows), "--fail-below", "0.9")
    assert said.exit_code == 5
    assert said.err == "gradwire: scaling efficiency below 90.0% (--fail-below): 8 49.5%\n"


def test_a_given_baseline_is_named(run_here: Run, rows: Path) -> None:
    said = run_here("efficiency", str(rows), "--baseline", "200")
    assert "the baseline is a given number, 200 on 1, taken as exact" in said.out


@pytest.mark.parametrize(("name", "starts"), [("x.svg", b"<?xml"), ("x.png", b"\x89PNG")])
def test_a_chart_is_written(run_here: Run, rows: Path, name: str, starts: bytes) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'gradwire[report]'")
    assert run_here("efficiency", str(rows), "--chart", name).exit_code == 0
    first = (rows.parent / name).read_bytes()
    assert first.startswith(starts)
    run_here("efficiency", str(rows), "--chart", name)
    assert (rows.parent / name).read_bytes() == first


def test_names_in_a_chart_stand_as_they_are_written(run_here: Run, rows: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'gradwire[report]'")
    rows.write_text("n,throughput,series\n1,100,a $x_{$\n2,190,a $x_{$\n1,100,_own\n2,180,_own\n")
    assert run_here("efficiency", str(rows.rename(rows.with_name("$\\frac$.csv"))), "--chart", "x.svg").exit_code == 0
    drawn = (rows.parent / "x.svg").read_text()
    assert all(name in drawn for name in ("$\\frac$.csv", "a $x_{$", "_own"))


def test_a_row_without_a_throughput_is_said(run_here: Run, rows: Path) -> None:
    rows.write_text(ROWS + "16,,1\n")
    said = run_here("efficiency", str(rows))
    assert "1 row has no throughput, left out: line 9" in said.out
    assert run_here("efficiency", str(rows), "--json").document["left_out"] == ["line 9"]


def test_thousands_of_sizes_stay_readable(run_here: Run, rows: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'gradwire[report]'")
    sizes = [size for size in range(1, 5001) for _ in range(2)]
    rows.write_text("n,throughput\n" + "".join(f"{size},{100 * size}\n" for size in sizes))
    said = run_here("efficiency", str(rows), "--chart", "x.svg")
    assert said.exit_code == 0
    assert "bars of 40 of 4999 sizes" in said.out
    # An axis that names each size would hold thousands of texts.
    assert 5 <= (rows.parent / "x.svg").read_text().count('<g id="xtick_') <= 15


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("rows.csv --num-gpus 3", "--num-gpus with a FILE"),
        ("rows.csv --chart x.pdf", "x.pdf: a chart is written as .svg or .png"),
        ("rows.csv --chart rows.csv", "rows.csv: a chart is written as .svg or .png"),
        ("rows.svg --chart rows.svg", "rows.svg: is one of the files that are read"),
        ("far.csv", "far.csv: line 2: throughput: '1e-300' is not from 1e-30 to 1e+30"),
        ("long.json", "long.json: not JSON"),
        (f"--baseline 1 --throughput 1 --num-gpus {'9' * 400}", "is above the limit, 1000000000"),
        (f"--baseline 1 --throughput 1 --num-gpus {'9' * 5000}", "is above the limit, 1000000000"),
        ("--baseline 1e308 --throughput 1 --num-gpus 1000000", "'1e308' is not from 1e-30 to 1e30"),
        ("rows.csv --throughput-column x", "there is no column 'x' (--throughput-column)"),
        ("none.csv", "none.csv: cannot be read"),
        ("--baseline 1", "without a FILE of rows, --num-gpus, --throughput must be given"),
        ("--baseline 1 --num-gpus 2 --throughput 2 --chart x.svg", "--chart needs a FILE of rows"),
    ],
)
def test_a_wrong_line_says_what_is_wrong(run_here: Run, rows: Path, words: str, message: str) -> None:
    rows.with_name("rows.svg").write_text(ROWS)
    rows.with_name("far.csv").write_text("1,1e308\n2,1e-300\n4,1e308\n")
    rows.with_name("long.json").write_text(f"[[1, {'9' * 5000}]]")
    said = run_here("efficiency", *words.split())
    assert said.exit_code == 2
    assert message in said.err
