"""Real public files: what the real libraries do with them is known, and the linter must say it."""

from __future__ import annotations

from functools import cache

from gradwire.lint import Checked, lint_files
from tests import corpus
from tests.corpus import results

pytestmark = corpus.NEEDED

FOUND_AT_LEAST = 0.95


@cache
def _check(file: str) -> Checked:
    return lint_files([corpus.folder() / file])


def test_files_that_work_have_no_error() -> None:
    false = {
        row["file"]: [(each.code, each.path) for each in _check(row["file"]).findings if each.severity == "error"]
        for row in results()
        if row["verdict"] == "ok"
    }
    assert not {file: found for file, found in false.items() if found}


def test_files_that_do_not_do_what_they_say_are_found() -> None:
    wrong = [row for row in results() if row["verdict"] != "ok"]
    missed = [
        row["file"]
        for row in wrong
        if not any(each.severity in ("error", "warning") for each in _check(row["file"]).findings)
    ]
    assert 1 - len(missed) / len(wrong) >= FOUND_AT_LEAST, missed


def test_the_fault_itself_is_named() -> None:
    """Every key that was seen to be ignored, and every auto that was left over, is the path of a finding."""
    unnamed = {}
    for row in results():
        keys = [
            key for column in ("silently_ignored_keys", "left_auto_after_HF") for key in row[column].split(", ") if key
        ]
        paths = {each.path for each in _check(row["file"]).findings if each.severity in ("error", "warning")}
        missing = [key for key in keys if not any(key == path or key.startswith(f"{path}.") for path in paths)]
        if missing:
            unnamed[row["file"]] = missing
    assert not unnamed


def test_a_refusal_at_load_is_an_error() -> None:
    """A file that DeepSpeed or Accelerate refuses is never a mere warning, but for what only a CUDA machine has."""
    mild = [
        row["file"]
        for row in results()
        if row["verdict"] == "error"
        and "only supported for CUDA" not in str(row)
        and not any(each.severity == "error" for each in _check(row["file"]).findings)
    ]
    assert not mild
