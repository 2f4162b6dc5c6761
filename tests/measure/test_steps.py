"""steps.jsonl: what is read back, whatever the moment at which the writer died."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gradwire.documents.step_schema import Step
from gradwire.errors import UsageError
from gradwire.measure.document import document_text
from gradwire.measure.steps import StepWriter, read_steps


def step(number: int) -> Step:
    return Step(step=number, loss=5.5 / number, gradient_norm=None, seconds=0.25, samples=16, tokens=768)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    with StepWriter(tmp_path / "run" / "steps.jsonl") as writer:
        for number in (1, 2, 3):
            writer.write(step(number))
    return tmp_path / "run" / "steps.jsonl"


def test_steps_are_read_back_from_the_file_and_from_its_folder(written: Path) -> None:
    assert read_steps(written).steps == (step(1), step(2), step(3))
    assert read_steps(written.parent) == read_steps(written)
    assert not read_steps(written).is_torn


def test_a_line_is_readable_before_the_writer_closes(tmp_path: Path) -> None:
    with StepWriter(tmp_path / "steps.jsonl") as writer:
        assert read_steps(tmp_path).steps == ()
        writer.write(step(1))
        assert read_steps(tmp_path).steps == (step(1),)


def test_a_file_cut_anywhere_gives_the_finished_steps(written: Path) -> None:
    content = written.read_bytes()
    for length in range(len(content) + 1):
        written.write_bytes(content[:length])
        log = read_steps(written)
        finished = content[:length].count(b"\n")
        assert log.steps == (step(1), step(2), step(3))[:finished]
        assert log.is_torn == (length > 0 and content[length - 1 : length] != b"\n")


def test_a_new_run_empties_the_file(written: Path) -> None:
    with StepWriter(written) as writer:
        writer.write(step(1))
    assert len(read_steps(written).steps) == 1


def test_a_run_that_continues_keeps_the_steps_before_and_trains_those_after_again(written: Path) -> None:
    with written.open("ab") as file:
        file.write(b'{"step":4,"lo')
    with StepWriter(written, after=2) as writer:
        writer.write(step(3))
        writer.write(step(4))
    assert read_steps(written).steps == (step(1), step(2), step(3), step(4))


@pytest.mark.parametrize("after", [7, 4])
def test_a_run_that_continues_elsewhere_begins_with_its_first_step(written: Path, after: int) -> None:
    with StepWriter(written, after=after) as writer:
        writer.write(step(after + 1))
        writer.write(step(after + 2))
    assert read_steps(written).steps == (step(after + 1), step(after + 2))
    with StepWriter(written, after=after + 1) as writer:
        writer.write(step(after + 2))
    assert [found.step for found in read_steps(written).steps] == [after + 1, after + 2]


def test_what_is_no_log_of_steps_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "steps.jsonl").write_text("of something else\n")
    with StepWriter(tmp_path / "steps.jsonl", after=3) as writer:
        writer.write(step(4))
    assert read_steps(tmp_path).steps == (step(4),)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{}", "steps.jsonl:2: not a step"),
        (b"\xff", "steps.jsonl:2: not a step"),
        (b"[" * 100_000, "steps.jsonl:2: not a step"),
        (b"", "steps.jsonl:2: not a step"),
        (b'{"step":3,"loss":1,"gradient_norm":1,"seconds":1,"samples":1,"tokens":1}', "steps.jsonl:2: step 3 where"),
    ],
)
def test_a_broken_finished_line_is_named(written: Path, line: bytes, message: str) -> None:
    first = written.read_bytes().split(b"\n")[0]
    written.write_bytes(first + b"\n" + line + b"\n")
    with pytest.raises(UsageError, match=message):
        read_steps(written)


def test_places_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read as steps: No such file"):
        read_steps(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        StepWriter(tmp_path / "file" / "steps.jsonl")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="cannot be read as steps: is not a regular file"):
        read_steps(tmp_path / "pipe")
    if os.access("/dev/full", os.W_OK):
        (tmp_path / "steps.jsonl").symlink_to("/dev/full")
        with StepWriter(tmp_path / "steps.jsonl") as writer, pytest.raises(UsageError, match="No space left"):
            writer.write(step(1))


def test_a_step_keeps_to_its_schema() -> None:
    assert '"step": 1' in document_text(step(1), "step")
