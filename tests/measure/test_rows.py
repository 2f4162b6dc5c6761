"""Throughputs that came from elsewhere: reading, refusing, grading."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradwire.errors import UsageError
from gradwire.measure.curve import curves_of
from gradwire.measure.rows import Row, read_rows


def read(tmp_path: Path, text: str, name: str = "rows.csv", **columns: str) -> list[Row]:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return list(read_rows(path, **columns).rows)


def pairs(rows: list[Row]) -> list[tuple[int, float]]:
    return [(row.num_gpus, row.throughput) for row in rows]


@pytest.mark.parametrize(
    "text",
    [
        "n,throughput\n1,100\n2,190.5\n",
        "1,100\n2,190.5\n",
        "\ufeffGPUs;tokens/s\n1;100\n2;1.905e2\n",
        "world_size\tTokens per second\r\n1\t100\r\n\r\n2\t190.5\r\n",
        "\nsep=;\r\nGPUs;tokens/s\r\n1;100,0\r\n2;190,5\r\n",
        'comment,"num-gpus","samples_per_sec"\nx,1,100\n"a, b",2,190.5',
    ],
)
def test_a_csv_is_read_in_its_usual_shapes(tmp_path: Path, text: str) -> None:
    assert pairs(read(tmp_path, text)) == [(1, 100.0), (2, 190.5)]


@pytest.mark.parametrize(
    "text",
    ["[[1, 100], [2, 190.5]]", '[{"gpus": 1, "throughput": 100}, {"gpus": "2", "throughput": "190.5", "note": null}]'],
)
def test_json_is_a_list_of_objects_or_pairs(tmp_path: Path, text: str) -> None:
    assert pairs(read(tmp_path, text, "rows.json")) == [(1, 100.0), (2, 190.5)]


def test_every_bad_row_is_named_with_its_line(tmp_path: Path) -> None:
    text = "n,throughput\n1,100\n\n0,5\n2.5,-1\nthree,12 tok/h\n4,1_000\n6,inf\n"
    with pytest.raises(UsageError) as refusal:
        read(tmp_path, text)
    lines = str(refusal.value).splitlines()
    assert [line.partition("rows.csv: ")[2] for line in lines[:-1]] == [
        "line 4: n: '0' is not a whole number of GPUs, at least 1",
        "line 5: n: '2.5' is not a whole number of GPUs, at least 1",
        "line 5: throughput: '-1' is not a finite number above 0 (k, M, G or T may follow it, and a unit such as "
        "tokens/s)",
        "line 6: n: 'three' is not a whole number of GPUs, at least 1",
        "line 6: throughput: '12 tok/h' is not a rate: 'tok/h' is no unit of work per second, such as tokens/s",
        "line 7: throughput: '1_000' is not a rate: '_000' is no unit of work per second, such as tokens/s",
        "line 8: throughput: 'inf' is not a finite number above 0 (k, M, G or T may follow it, and a unit such as "
        "tokens/s)",
    ]


@pytest.mark.parametrize(
    ("text", "rate"), [("12.3k", 12_300.0), ("1.2M", 1.2e6), ("3 G", 3e9), ("1e3K", 1e6), ("0.5T", 5e11)]
)
def test_a_rate_may_have_a_prefix(tmp_path: Path, text: str, rate: float) -> None:
    assert pairs(read(tmp_path, f"n,throughput\n1,{text}\n")) == [(1, pytest.approx(rate))]


@pytest.mark.parametrize(
    ("written", "rates"),
    [
        (["1,234.5", "2,345"], [1234.5, 2345.0]),
        (["1.234,5", "2.345"], [1234.5, 2345.0]),
        (["1,234,567", "999"], [1234567.0, 999.0]),
        (["1.234.567", "999"], [1234567.0, 999.0]),
        (["1 234", "12\u202f345,5"], [1234.0, 12345.5]),
        (["1'234.5", "999"], [1234.5, 999.0]),
        (["1,5", "100"], [1.5, 100.0]),
        (["1.234", "2.345"], [1.234, 2.345]),
        (["12 tok/s", "24 tokens/sec"], [12.0, 24.0]),
        (["1.2k samples/s", "2,400 samples per second"], [1200.0, 2400.0]),
        (["12 /s", "24/s"], [12.0, 24.0]),
        (["8.1 k images/s", "8,200.0img/s"], [8100.0, 8200.0]),
    ],
)
def test_a_column_is_read_by_its_own_separators_and_unit(
    tmp_path: Path, written: list[str], rates: list[float]
) -> None:
    text = "\n".join(f"{size};{rate}" for size, rate in enumerate(written, start=1))
    assert [row.throughput for row in read(tmp_path, f"n;throughput\n{text}\n")] == pytest.approx(rates)


def test_what_could_be_two_numbers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"line 2: throughput: '1,234' could be 1234 or 1.234; write it without"):
        read(tmp_path, "n;throughput\n1;1,234\n2;2,345\n")
    with pytest.raises(UsageError, match="line 3: throughput: '5 samples/s': the column mixes tok/s and sam/s"):
        read(tmp_path, "n;throughput\n1;5 tok/s\n2;5 samples/s\n")


@pytest.mark.parametrize(
    ("header", "line"),
    [
        ("# GPUs,Throughput (tokens/s)", "8,100"),
        ("GPU count,tok/s", "8.0,100"),
        ("Devices,throughput/samples_per_sec,", "8 GPUs,100,"),
        ("# made on Monday\nnproc,img/sec", "8x,100,,"),
        ("world size,Total tokens per second", '8,"100"'),
    ],
)
def test_headers_and_sizes_as_people_write_them(tmp_path: Path, header: str, line: str) -> None:
    assert pairs(read(tmp_path, f"{header}\n{line}\n")) == [(8, 100.0)]


def test_a_rate_of_one_gpu_is_not_taken_for_that_of_all(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="tokens/s/gpu is of one GPU: add a column with the throughput of all GPUs"):
        read(tmp_path, "n,tokens/s/gpu\n1,100\n")


@pytest.mark.parametrize("text", ["12.3m", "12.3kk", "k", "12.3 tokens", "1,23,4"])
def test_what_is_no_rate_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="no row was used"):
        read(tmp_path, f'n,throughput\n1,100\n2,"{text}"\n')


def test_rows_without_a_throughput_are_left_out_and_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("n,throughput\n1,100\n2,\n4,NaN\n8,OOM\n16,1000\n32,-\n")
    found = read_rows(path)
    assert pairs(list(found.rows)) == [(1, 100.0), (16, 1000.0)]
    assert found.left_out == ("line 3", "line 4", "line 5", "line 7")
    path.write_text("n,throughput\n1,\n2,nan\n")
    with pytest.raises(UsageError, match="no row has a throughput: throughput is empty in all 2"):
        read_rows(path)
    path = tmp_path / "rows.json"
    path.write_text('[{"n": 1, "throughput": 5}, {"n": 2, "throughput": null}, {"n": 4}, {"n": 8, "throughput": NaN}]')
    assert read_rows(path).left_out == ("row 2", "row 3", "row 4")


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (
            "n,speed\n1,2\n",
            "rows.csv",
            "no column is the throughput: the columns are n, speed; known names are throughput",
        ),
        ("n,tokens/s,samples/s\n1,2,3\n", "rows.csv", "tokens/s and samples/s could both be the throughput; say which"),
        ("n,n,throughput\n1,2,3\n", "rows.csv", "two columns are called n"),
        ("n,throughput\n1,2,3\n", "rows.csv", "line 2: 3 fields, but the header has 2"),
        ("1,2,3\n", "rows.csv", "3 columns of numbers and no header"),
        ('n,throughput\n"1,2\n', "rows.csv", "line 2: unexpected end of data"),
        ("", "rows.csv", "no row with a throughput"),
        ("n,throughput\n", "rows.csv", "no row with a throughput"),
        ("{}", "rows.json", "a list of objects"),
        ("[1]", "rows.json", "row 1: neither an object nor a pair"),
        ("[" * 100_000, "rows.json", "not JSON"),
        ('[{"n": true, "throughput": 1e999}]', "rows.json", "row 1: n: True is not a whole number"),
    ],
)
def test_what_is_no_table_of_throughputs_is_refused(tmp_path: Path, text: str, name: str, message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        read(tmp_path, text, name)
    assert message in str(refusal.value)


def test_columns_of_other_names_can_be_named(tmp_path: Path) -> None:
    text = "cards,n,tokens/s,tok\n8,1,2,3\n"
    assert pairs(read(tmp_path, text, size_name="cards", throughput_name="tok")) == [(8, 3.0)]
    with pytest.raises(UsageError, match=r"no column 'x' \(--size-column\); the columns are cards, n"):
        read(tmp_path, text, size_name="x")


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_rows(tmp_path / "none.csv")
    (tmp_path / "binary.csv").write_bytes(b"n,throughput\n1,\xff\n")
    with pytest.raises(UsageError, match="not UTF-8"):
        read_rows(tmp_path / "binary.csv")


def test_repeats_make_intervals_and_a_repeat_column_makes_pairs(tmp_path: Path) -> None:
    rows = "n,throughput,run\n1,100,a\n4,360,a\n1,50,b\n4,181,b\n1,80,c\n4,287,c\n"
    (curve,) = curves_of(read(tmp_path, rows), scaling="weak")
    graded = curve.points[1].graded
    assert curve.points[0].graded is None
    assert graded is not None and graded.interval is not None
    assert (graded.interval.method, graded.grade) == ("paired-t", "good")
    without = "\n".join(line.rpartition(",")[0] for line in rows.splitlines())
    (apart,) = curves_of(read(tmp_path, without), scaling="weak")
    graded = apart.points[1].graded
    assert graded is not None and graded.interval is not None
    assert (graded.interval.method, graded.grade, graded.is_too_noisy) == ("welch-t", "undecided", True)


def test_a_repeat_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="line 3: repeat a of 1 GPUs is there twice"):
        curves_of(read(tmp_path, "n,throughput,run\n1,1,a\n1,2,a\n2,2,a\n"), scaling="weak")


def test_each_series_has_its_own_baseline_and_a_given_one_serves_all(tmp_path: Path) -> None:
    rows = read(tmp_path, "backend,n,throughput\na,1,100\na,2,190\nb,2,100\nb,4,100\n")
    a, b = curves_of(rows, scaling="weak")
    assert (a.series, a.baseline_num_gpus, b.series, b.baseline_num_gpus) == ("a", 1, "b", 2)
    assert b.points[1].graded is not None
    assert (b.points[1].graded.scaling_efficiency, b.points[1].graded.grade) == (0.5, "poor")
    given, _ = curves_of(rows, scaling="weak", baseline=(1, 200.0))
    assert given.baseline_is_given
    assert [point.graded and point.graded.scaling_efficiency for point in given.points] == [0.5, 0.475]
