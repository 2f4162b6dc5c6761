"""The parts that methods are made of, in one process; `test_communication_parts.py` runs it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator

import torch

from gradwire.train.communication.dispatcher import ThreadDispatcher
from gradwire.train.communication.int8 import quantise, split
from gradwire.train.communication.layout import Layout, layout_of, split_matrices
from gradwire.train.communication.low_rank import orthonormal
from gradwire.train.communication.per_parameter import PerParameter
from gradwire.train.communication.remembered import RememberedBuckets
from gradwire.train.communication.scratch import Scratch
from gradwire.train.communication.topk import largest


class Delayed:
    """A collective that somebody else ends."""

    def __init__(self) -> None:
        self._future: torch.futures.Future[None] = torch.futures.Future()

    def wait(self) -> None:
        self._future.wait()

    def get_future(self) -> torch.futures.Future[None]:
        return self._future

    def end(self) -> None:
        self._future.set_result(None)


def finishing(
    failures: list[BaseException | None], done: threading.Semaphore
) -> Callable[[BaseException | None], None]:
    def finished(failure: BaseException | None) -> None:
        failures.append(failure)
        done.release()

    return finished


class Broken(Delayed):
    def wait(self) -> None:
        raise RuntimeError("connection closed by peer")


def check_matrices_at_equal_distances_are_one_view() -> None:
    shapes = [(30, 20), (30,), (30, 20), (30,), (30, 20), (7,), (8, 8), (30, 20)]
    layout = layout_of([str(index) for index in range(len(shapes))], [torch.empty(shape) for shape in shapes])
    batches, whole = split_matrices(layout, matrix_approximation_rank=2, min_compression_rate=2)
    assert [[slot.name for slot in batch.slots] for batch in batches] == [["0", "2", "4"], ["7"]]
    assert [slot.name for slot in whole] == ["1", "3", "5", "6"]
    flat = torch.arange(layout.numel, dtype=torch.float32)
    view = batches[0].view(flat)
    assert view.shape == (3, 30, 20) and view.data_ptr() == flat.data_ptr()
    assert torch.equal(view[2].flatten(), flat[layout.slots[4].offset : layout.slots[4].end])


def check_a_matrix_is_the_memory_as_it_lies() -> None:
    transposed = torch.empty(40, 30).t()
    channels_last = torch.empty(8, 3, 5, 5).to(memory_format=torch.channels_last)
    scalar = torch.empty(())
    layout = layout_of(["t", "c", "s"], [transposed, channels_last, scalar])
    assert [(slot.rows, slot.columns) for slot in layout.slots] == [(40, 30), (8, 75), (1, 1)]


def check_collectives_start_in_bucket_order_whatever_ends_first() -> None:
    for seed in range(20):
        chance = random.Random(seed)
        started: list[tuple[int, int]] = []
        waiting: list[Delayed] = []
        lock, done = threading.Lock(), threading.Semaphore(0)

        def parts(
            bucket: int,
            started: list[tuple[int, int]] = started,
            waiting: list[Delayed] = waiting,
            lock: threading.Lock = lock,
        ) -> Iterator[Delayed]:
            for part in range(3):
                work = Delayed()
                with lock:
                    started.append((part, bucket))
                    waiting.append(work)
                yield work

        dispatcher = ThreadDispatcher()
        failures: list[BaseException | None] = []
        for bucket in range(7):
            dispatcher.submit(parts(bucket), finishing(failures, done))
        ended = 0
        while ended < 21:
            with lock:
                work = waiting.pop(chance.randrange(len(waiting))) if waiting else None
            if work:
                work.end()
                ended += 1
        for _ in range(7):
            assert done.acquire(timeout=10)
        dispatcher.close()
        assert failures == [None] * 7
        for part in range(3):
            assert [bucket for number, bucket in started if number == part] == list(range(7)), seed


def check_one_failure_fails_every_bucket_and_later_ones() -> None:
    dispatcher = ThreadDispatcher()
    broken, never = Broken(), Delayed()
    failures: list[BaseException | None] = []
    done = threading.Semaphore(0)
    finished = finishing(failures, done)
    dispatcher.submit(iter([never]), finished)
    dispatcher.submit(iter([broken]), finished)
    broken.end()
    assert done.acquire(timeout=10) and done.acquire(timeout=10)
    dispatcher.submit(iter([]), finished)
    assert done.acquire(timeout=10)
    assert [str(failure) for failure in failures] == ["connection closed by peer"] * 3
    dispatcher.close()


def check_a_bug_in_a_method_fails_its_buckets_too() -> None:
    def parts() -> Iterator[Delayed]:
        raise TypeError("a bug")
        yield Delayed()

    threading.excepthook = lambda _: None
    dispatcher = ThreadDispatcher()
    failures: list[BaseException | None] = []
    done = threading.Semaphore(0)
    dispatcher.submit(parts(), finishing(failures, done))
    assert done.acquire(timeout=10)
    assert str(failures[0]) == "a bug"


def check_a_basis_is_orthonormal_for_any_input() -> None:
    zero, dependent = torch.zeros(1, 9, 3), torch.ones(1, 9, 3)
    for factors in (zero, dependent, torch.randn(4, 9, 3), torch.randn(1, 9, 3) * 1e-30):
        basis = orthonormal(factors)
        assert (basis.transpose(1, 2) @ basis - torch.eye(3)).abs().max() < 1e-5


def check_quantised_blocks_stay_within_half_a_scale() -> None:
    values = torch.randn(6, 64) * torch.logspace(-30, 30, 6)[:, None]
    values[3] = 0
    exact = values.clone()
    levels, scales = split(torch.zeros(6 * 68, dtype=torch.uint8), 64)
    quantise(values, levels, scales, Scratch())
    assert ((exact - levels * scales).abs() <= scales * 0.5001).all()
    assert ((values - (exact - levels * scales)).abs() <= scales * 1e-4).all()
    assert levels.abs().amax(1).tolist() == [127, 127, 127, 0, 127, 127]


def check_largest_agrees_with_topk() -> None:
    values = torch.randn(200_000) ** 3
    for count in (1, 50, 2_000, 199_999):
        expected = values.abs().topk(count).values.sum()
        found = largest(values, count, Scratch())
        assert len(found.unique()) == count
        assert torch.isclose(values[found].abs().sum(), expected)
    assert len(largest(torch.zeros(200_000), 100, Scratch())) == 100


def check_entries_move_and_old_buffers_go() -> None:
    table = PerParameter()
    sizes = [("a", 2), ("b", 3), ("c", 1)]

    def layout(names: str) -> Layout:
        return layout_of(list(names), [torch.empty(dict(sizes)[name]) for name in names])

    like = torch.empty(0)
    table.flat(layout("abc"), sizes, like=like).copy_(torch.arange(6.0))
    assert table.flat(layout("cb"), [("c", 1), ("b", 3)], like=like).tolist() == [5, 2, 3, 4]
    assert table.flat(layout("a"), [("a", 2)], like=like, padded=4).tolist() == [0, 1, 0, 0]
    assert {name: entry.tolist() for name, entry in table.state().items()} == {"a": [0, 1], "b": [2, 3, 4], "c": [5]}
    other = PerParameter()
    other.load(table.state() | {"b": torch.zeros(7)})
    assert other.flat(layout("ab"), [("a", 2), ("b", 3)], like=like).tolist() == [0, 1, 0, 0, 0]


def check_buckets_are_repeated_for_one_backward_pass() -> None:
    buckets = RememberedBuckets()
    buckets.resume([("c",), ("b", "a")])
    assert buckets.arrange(("c", "b", "a")) == [("c",), ("b", "a")]
    buckets.end_backward()
    assert buckets.last == [("c",), ("b", "a")]
    assert buckets.arrange(("c", "b", "a")) == [("c", "b", "a")]
    buckets.resume([("c", "b"), ("a",)])
    assert buckets.arrange(("b", "a")) == [("b", "a")]
