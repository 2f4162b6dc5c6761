"""Reads throughputs that came from elsewhere: rows of (number of GPUs, throughput) in a CSV or JSON file."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gradwire.errors import UsageError
from gradwire.measure.row_numbers import PLAIN_NUMBER, Value, read_rates, read_size
from gradwire.reading import read_regular

SIZE_NAMES = (
    *("n", "n_gpus", "num_gpus", "num_gpu", "number_of_gpus", "gpus", "gpu", "gpu_count", "ngpu", "ngpus"),
    *("world_size", "num_processes", "processes", "nproc", "ranks", "num_ranks", "devices", "num_devices", "n_devices"),
)
_WORK = (
    "tokens",
    "token",
    "tok",
    "samples",
    "sample",
    "sequences",
    "seq",
    "images",
    "image",
    "img",
    "imgs",
    "examples",
)
_PER_SECOND = ("per_second", "per_sec", "per_s", "sec", "s")
THROUGHPUT_NAMES = (
    "throughput",
    "total_throughput",
    *(f"{before}{work}_{per}" for before in ("", "throughput_", "total_") for per in _PER_SECOND for work in _WORK),
    "tps",
)
REPEAT_NAMES = ("repeat", "run", "trial", "round")
SERIES_NAMES = ("series", "backend", "name", "label", "config", "framework")

_LARGEST_BYTES = 16 * 2**20
_MOST_SHOWN = 20
# A rate of one GPU is not the rate of all of them.
_EACH = re.compile(r"(per|s|sec|second)_(gpu|device|rank|process)$")
_SHOWN_NAMES = 6
# What a spreadsheet writes before the header to say what parts its fields.
_SEPARATOR = re.compile(r"sep=([,;\t])", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One measured throughput; `repeat` and `series` are None where the file has no such column.

    `place` is where it stands: `line 3` of a CSV, `row 3` of a JSON file, both from 1.
    """

    place: str
    num_gpus: int
    throughput: float
    repeat: str | None
    series: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """The rows of a file in their order, and the places of those that have no throughput (a run that failed, say)."""

    rows: tuple[Row, ...]
    left_out: tuple[str, ...]


def read_rows(path: Path, *, size_name: str | None = None, throughput_name: str | None = None) -> Rows:
    """Return the rows of `path`: JSON by its suffix `.json`, else CSV (commas, semicolons or tabs).

    A CSV has a header, or two columns of numbers and none: size, throughput. JSON is a list of objects, or of pairs.
    Columns are found by SIZE_NAMES, THROUGHPUT_NAMES, REPEAT_NAMES and SERIES_NAMES, whatever their case, with every
    other sign than letters and digits as `_`; `size_name` and `throughput_name` name columns of another name. A
    throughput may have separators, a prefix and a unit (1,234.5 or 12.3k tokens/s); a row whose throughput is empty,
    `-`, `nan`, `OOM` or the like is left out.

    Raises UsageError for a file that cannot be read, a missing or doubtful column, and with every bad row at once.
    """
    text = _text(path)
    table = _json_table(path, text) if path.suffix.lower() == ".json" else _csv_table(path, text)
    if not table:
        raise UsageError(f"{path}: no row with a throughput; give a column of sizes and one of throughputs")
    names = list(dict.fromkeys(name for _, row in table for name in row))
    size = _column(path, names, SIZE_NAMES, size_name, "number of GPUs", "--size-column")
    throughput = _column(path, names, THROUGHPUT_NAMES, throughput_name, "throughput", "--throughput-column")
    repeat, series = _optional(path, names, REPEAT_NAMES), _optional(path, names, SERIES_NAMES)
    rows, wrong, left_out = [], [], []
    rates = read_rates([row.get(throughput) for _, row in table])
    for (place, row), rate in zip(table, rates, strict=True):
        if rate is None:
            left_out.append(place)
            continue
        number = read_size(row.get(size))
        if isinstance(number, str):
            wrong.append(f"{path}: {place}: {size}: {number}")
        if isinstance(rate, str):
            wrong.append(f"{path}: {place}: {throughput}: {rate}")
        if isinstance(number, int) and isinstance(rate, float):
            rows.append(
                Row(
                    place=place,
                    num_gpus=number,
                    throughput=rate,
                    repeat=_words(row.get(repeat)) if repeat else None,
                    series=_words(row.get(series)) if series else None,
                )
            )
    if wrong:
        more = [f"... and {len(wrong) - _MOST_SHOWN} more"] if len(wrong) > _MOST_SHOWN else []
        raise UsageError("\n".join([*wrong[:_MOST_SHOWN], *more, "no row was used; correct or remove these"]))
    if not rows:
        raise UsageError(f"{path}: no row has a throughput: {throughput} is empty in all {len(left_out)}")
    return Rows(rows=tuple(rows), left_out=tuple(left_out))


def _text(path: Path) -> str:
    try:
        content = read_regular(path, max_bytes=_LARGEST_BYTES)
        if len(content) > _LARGEST_BYTES:
            raise UsageError(f"{path}: larger than {_LARGEST_BYTES // 2**20} MiB, which is no table of throughputs")
        return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8-sig").read()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text (byte {error.start})") from error


def _csv_table(path: Path, text: str) -> list[tuple[str, Mapping[str, Value]]]:
    first = next((line for line in text.splitlines() if line.strip() and not _is_comment(re.split("[\t;,]", line))), "")
    said = _SEPARATOR.fullmatch(first.strip())
    delimiter = said[1] if said else max("\t;,", key=first.count)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True)
    lines: list[tuple[int, list[str]]] = []
    try:
        for fields in reader:
            if any(field.strip() for field in fields) and not _is_comment(fields):
                lines.append((reader.line_num, [field.strip() for field in fields]))
    except csv.Error as error:
        raise UsageError(f"{path}: line {reader.line_num}: {error}") from error
    lines = lines[1:] if said else lines
    if not lines:
        return []
    header = lines[0][1]
    if all(PLAIN_NUMBER.fullmatch(field) for field in header):
        if len(header) != 2:
            raise UsageError(f"{path}: line {lines[0][0]}: {len(header)} columns of numbers and no header; name them")
        header = [SIZE_NAMES[0], THROUGHPUT_NAMES[0]]
    else:
        lines = lines[1:]
    _refuse_twins(path, header)
    # A spreadsheet ends rows with fields that nobody filled in.
    lines = [(number, _without_empty_end(fields, len(header))) for number, fields in lines]
    uneven = [
        f"{path}: line {number}: {len(fields)} fields, but the header has {len(header)}"
        for number, fields in lines
        if len(fields) != len(header)
    ]
    if uneven:
        raise UsageError("\n".join(uneven[:_MOST_SHOWN]))
    return [(f"line {number}", dict(zip(header, fields, strict=True))) for number, fields in lines]


def _json_table(path: Path, text: str) -> list[tuple[str, Mapping[str, Value]]]:
    try:
        content = json.loads(text)
    # ValueError: also a number of more digits than Python reads.
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON: {error}") from error
    if not isinstance(content, list):
        raise UsageError(f"{path}: a JSON file of rows is a list of objects, or of [size, throughput] pairs")
    table: list[tuple[str, Mapping[str, Value]]] = []
    wrong = []
    for number, row in enumerate(content, start=1):
        if isinstance(row, dict):
            table.append((f"row {number}", row))
        elif isinstance(row, list) and len(row) == 2:
            table.append((f"row {number}", {SIZE_NAMES[0]: row[0], THROUGHPUT_NAMES[0]: row[1]}))
        else:
            wrong.append(f"{path}: row {number}: neither an object nor a pair")
    if wrong:
        raise UsageError("\n".join(wrong[:_MOST_SHOWN]))
    return table


def _refuse_twins(path: Path, header: Sequence[str]) -> None:
    twins = sorted({name for name in header if name and header.count(name) > 1})
    if twins:
        raise UsageError(f"{path}: two columns are called {', '.join(twins)}")


def _is_comment(fields: Sequence[str]) -> bool:
    """Whether a line is a remark; a header may begin with `# GPUs`."""
    return fields[0].lstrip().startswith("#") and _plain(fields[0]) not in SIZE_NAMES


def _without_empty_end(fields: list[str], count: int) -> list[str]:
    return fields[:count] if not any(fields[count:]) else fields


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def _column(path: Path, names: Sequence[str], known: Sequence[str], asked: str | None, what: str, option: str) -> str:
    if asked is not None:
        if asked not in names:
            raise UsageError(f"{path}: there is no column {asked!r} ({option}); the columns are {', '.join(names)}")
        return asked
    found = [name for name in names if _plain(name) in known]
    if len(found) == 1:
        return found[0]
    each = [name for name in names if option == "--throughput-column" and _EACH.search(_plain(name))]
    if not found and each:
        raise UsageError(
            f"{path}: {' and '.join(each)} is of one GPU: add a column with the throughput of all GPUs together"
        )
    if not found:
        raise UsageError(
            f"{path}: no column is the {what}: the columns are {', '.join(names)}; known names are "
            f"{', '.join(known[:_SHOWN_NAMES])} and the like. Name it with {option}"
        )
    raise UsageError(f"{path}: {' and '.join(found)} could both be the {what}; say which with {option}")


def _optional(path: Path, names: Sequence[str], known: Sequence[str]) -> str | None:
    found = [name for name in names if _plain(name) in known]
    if len(found) > 1:
        raise UsageError(f"{path}: {' and '.join(found)} mean the same to Gradwire; rename or remove all but one")
    return found[0] if found else None


def _words(value: Value) -> str | None:
    return None if value is None or value == "" else str(value)[:100]
