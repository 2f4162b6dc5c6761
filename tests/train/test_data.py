"""Samples are a pure function of the seed and the step, shared out without overlap."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as draw

from gradwire.documents.plan_schema import Batch
from gradwire.errors import UsageError
from gradwire.train.data import SampleOrder, Text, cut, order_samples, read_text


def batch(ranks: int, *, per_gpu: int = 2, accumulation: int = 3) -> Batch:
    return Batch(
        batch_size_per_gpu=per_gpu,
        gradient_accumulation=accumulation,
        data_parallel_size=ranks,
        global_batch_size=per_gpu * accumulation * ranks,
        tokens_per_step=None,
    )


def text_of(size: int) -> Text:
    return Text(content=numpy.arange(size, dtype=numpy.int64).astype(numpy.uint8), origin="a test")


def global_starts(order: SampleOrder, step: int) -> list[int]:
    return [
        int(start)
        for micro_step in range(order.batch.gradient_accumulation)
        for rank in range(order.batch.data_parallel_size)
        for start in order.starts(step=step, micro_step=micro_step, data_parallel_rank=rank)
    ]


@given(
    size=draw.integers(100, 3000),
    length=draw.integers(2, 40),
    seed=draw.integers(0, 2**32 - 1),
    step=draw.integers(0, 200),
)
def test_a_step_has_the_same_samples_on_any_number_of_ranks(size: int, length: int, seed: int, step: int) -> None:
    splits = [batch(1, per_gpu=24, accumulation=1), batch(2, per_gpu=2, accumulation=6), batch(4)]
    sets = [
        sorted(global_starts(order_samples(text_of(size), sequence_length=length, seed=seed, batch=split), step))
        for split in splits
    ]
    assert sets[0] == sets[1] == sets[2]
    assert len(set(sets[0])) == 24


def test_every_window_is_read_once_before_any_is_read_again() -> None:
    order = order_samples(text_of(12 * 10 + 1), sequence_length=10, seed=3, batch=batch(2))
    assert sorted(global_starts(order, 0)) == list(range(0, 120, 10))
    assert global_starts(order, 0) != global_starts(order, 1)


def test_another_seed_gives_another_order() -> None:
    one, other = (order_samples(text_of(5000), sequence_length=10, seed=seed, batch=batch(2)) for seed in (0, 1))
    assert global_starts(one, 0) != global_starts(other, 0)


def test_labels_are_the_next_bytes() -> None:
    tokens, labels = cut(text_of(200), numpy.array([5, 100]), 4)
    assert tokens.tolist() == [[5, 6, 7, 8], [100, 101, 102, 103]]
    assert labels.tolist() == [[6, 7, 8, 9], [101, 102, 103, 104]]


def test_last_window_ends_with_the_text() -> None:
    order = order_samples(text_of(10 + 12), sequence_length=10, seed=0, batch=batch(2))
    cut(text_of(22), numpy.array(global_starts(order, 0)), 10)
    assert max(global_starts(order, 0)) == 11


def test_text_too_short_for_one_step_is_refused() -> None:
    with pytest.raises(UsageError, match=r"has 21 bytes.*at least 22.*data\.path"):
        order_samples(text_of(21), sequence_length=10, seed=0, batch=batch(2))


def test_standard_library_is_read_alike_each_time() -> None:
    one, other = read_text(None), read_text(None)
    assert one.checksum() == other.checksum()
    assert len(one.content) > 2**20
    assert b"import" in one.content[:100_000].tobytes()


def test_folder_is_read_in_name_order_without_binary_files(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("second")
    (tmp_path / "a.txt").write_text("first ")
    (tmp_path / "c.bin").write_bytes(b"\0\1\2")
    assert read_text(str(tmp_path)).content.tobytes() == b"first second"


def test_texts_that_differ_have_another_checksum(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a" * 100)
    (tmp_path / "b").write_text("a" * 99 + "b")
    assert read_text(str(tmp_path / "a")).checksum() != read_text(str(tmp_path / "b")).checksum()


@pytest.mark.parametrize("kind", ["missing", "empty file", "empty folder"])
def test_path_without_text_is_refused(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "place"
    if kind == "empty file":
        place.touch()
    if kind == "empty folder":
        place.mkdir()
    with pytest.raises(UsageError, match=r"data\.path .*place"):
        read_text(str(place))
