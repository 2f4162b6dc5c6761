"""Reading and writing JSON documents."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gradwire.documents.comparison_schema import Baseline, Comparison
from gradwire.errors import UsageError
from gradwire.measure.document import document_text, read_document, violations, write_text


def read(path: Path) -> Comparison:
    return read_document(path, "comparison", Comparison)


def test_a_file_that_is_missing_or_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"missing\.json: cannot be read as a comparison: No such file"):
        read(tmp_path / "missing.json")
    with pytest.raises(UsageError, match="Is a directory"):
        read(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"NaN", b"[" * 100_000, b"{}{}"])
def test_what_is_not_json_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "comparison.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="not a comparison: not JSON"):
        read(path)


def test_a_file_too_large_to_be_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "comparison.json"
    with path.open("wb") as file:
        file.truncate(65 * 2**20)
    with pytest.raises(UsageError, match="larger than 64 MiB"):
        read(path)


def test_every_violation_is_named() -> None:
    found = violations({"format_version": 2, "recipe_name": "", "extra": 1}, "comparison")
    assert any("format_version" in violation for violation in found)
    assert any("recipe_name" in violation for violation in found)
    assert any("'extra' was unexpected" in violation for violation in found)
    assert any("'cells' is a required property" in violation for violation in found)


def test_a_float_is_no_integer_and_neither_is_true() -> None:
    for value in (1.0, True):
        document = {"format_version": 1, "recipe_name": "x", "recipe_sha256": "0" * 64, "scaling": "weak"}
        run = {"backend": "native", "num_gpus": value, "repeat": 0, "status": "ok", "reason": None, "folder": "x"}
        run |= {"samples_per_second": 1, "tokens_per_second": 1.5}
        assert violations(document | {"runs": [run], "cells": [], "notes": []}, "comparison")


def test_our_own_document_that_breaks_its_schema_is_a_bug() -> None:
    bad = Comparison(
        format_version=1,
        recipe_name="x",
        recipe_sha256="short",
        scaling="weak",
        baseline=Baseline(kind="smallest-measured", num_gpus=None, throughput=None),
        machines=[],
        runs=[],
        cells=[],
        fits=[],
        notes=[],
    )
    with pytest.raises(ValueError, match="breaks its own schema: recipe_sha256"):
        document_text(bad, "comparison")


def test_writing_replaces_the_whole_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "made" / "here" / "a.txt"
    write_text(path, "one\n" * 1000)
    write_text(path, "two\n")
    assert path.read_text() == "two\n"
    assert list(path.parent.iterdir()) == [path]


def test_a_written_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    write_text(tmp_path / "ours", "")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_place_that_cannot_be_written_is_refused_and_keeps_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(UsageError, match="cannot be written"):
        write_text(tmp_path / "file" / "below", "new")
    assert (tmp_path / "file").read_text() == "kept"
    folder = tmp_path / "folder.json"
    (folder / "inside").mkdir(parents=True)
    with pytest.raises(UsageError, match="cannot be written"):
        write_text(folder, "new")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder.json"]


def test_what_is_not_a_regular_file_is_neither_read_nor_written_over(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(UsageError, match="is not a regular file"):
            read(path)
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    for path in (pipe, link, tmp_path):
        with pytest.raises(UsageError, match=f"{path}: cannot be written: is not a regular file; give"):
            write_text(path, "x")
    with pytest.raises(UsageError, match=r"\.: names no file; give a file"):
        write_text(Path(), "x")
    assert sorted(tmp_path.iterdir()) == [link, pipe]
    assert pipe.is_fifo()
    assert link.is_symlink()
