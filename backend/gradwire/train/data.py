"""Text as bytes: which bytes are sample number n of step s is a pure function of the seed, not of the ranks."""

from __future__ import annotations

import sys
import sysconfig
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy
from numpy.typing import NDArray

from gradwire.documents.plan_schema import Batch
from gradwire.errors import UsageError

Bytes = NDArray[numpy.uint8]
Starts = NDArray[numpy.int64]

STANDARD_LIBRARY_CAP_BYTES = 8 * 1024 * 1024
FOLDER_CAP_BYTES = 1024 * 1024 * 1024
IGNORED = -100
"""The label of a token that counts for no loss, as torch and transformers have it."""

_NOT_THE_LIBRARY = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test"})
_CHECKED_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """All bytes that a run may read, and in words where they come from."""

    content: Bytes
    origin: str

    def checksum(self) -> int:
        """Return a CRC-32 of the length and the first 64 MiB: different where two ranks read different text."""
        head = self.content[:_CHECKED_BYTES].tobytes()
        return zlib.crc32(head, zlib.crc32(str(len(self.content)).encode()))


def read_text(path: str | None) -> Text:
    """Return the bytes of `path` (a file, or a folder's text files in name order), or of the standard library.

    The standard library's `.py` files are read in name order up to 8 MiB, its tests left out.
    Raises UsageError where the path is missing, unreadable or holds no text.
    """
    if path is None:
        folder = Path(sysconfig.get_path("stdlib"))
        version = ".".join(map(str, sys.version_info[:3]))
        return Text(
            content=_join(_sources(folder), STANDARD_LIBRARY_CAP_BYTES), origin=f"Python {version} standard library"
        )
    place = Path(path)
    try:
        content = _join_folder(place) if place.is_dir() else _map_file(place)
    except OSError as error:
        raise UsageError(f"data.path {path}: {error.strerror}") from None
    if len(content) == 0:
        raise UsageError(f"data.path {path}: holds no text; name a text file, or a folder with text files")
    return Text(content=content, origin=path)


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleOrder:
    """Where each sample of each step starts in the text.

    A step takes `batch.global_batch_size` windows of sequence_length + 1 bytes out of one shuffled list, so the
    set is the same however many ranks share it, and no two ranks of a step read the same window. Windows do not
    overlap while the text is long enough for a step; a shorter text is cut into overlapping ones.
    """

    windows: int
    stride: int
    seed: int
    batch: Batch

    def starts(self, *, step: int, micro_step: int, data_parallel_rank: int) -> Starts:
        """Return the first byte of each of the `batch_size_per_gpu` samples, shape (batch_size_per_gpu,)."""
        batch = self.batch
        steps_per_epoch = self.windows // batch.global_batch_size
        epoch, step_of_epoch = divmod(step, steps_per_epoch)
        piece = micro_step * batch.data_parallel_size + data_parallel_rank
        first = step_of_epoch * batch.global_batch_size + piece * batch.batch_size_per_gpu
        return _shuffled(self.windows, self.seed, epoch)[first : first + batch.batch_size_per_gpu] * self.stride


def order_samples(text: Text, *, sequence_length: int, seed: int, batch: Batch) -> SampleOrder:
    """Return the order of the samples of `text`; raises UsageError where it is too short for one step."""
    room = len(text.content) - sequence_length
    if room < batch.global_batch_size:
        raise UsageError(
            f"the text ({text.origin}) has {len(text.content)} bytes; one step of {batch.global_batch_size} samples "
            f"of {sequence_length} tokens needs at least {sequence_length + batch.global_batch_size}: "
            "set data.path to a longer text, or make model.sequence_length or the batch smaller"
        )
    stride = min(sequence_length, max(1, (room - 1) // max(1, batch.global_batch_size - 1)))
    return SampleOrder(windows=(room - 1) // stride + 1, stride=stride, seed=seed, batch=batch)


def cut(text: Text, starts: Starts, sequence_length: int) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64]]:
    """Return tokens and labels (each token's next one), each of shape (len(starts), sequence_length)."""
    windows = text.content[starts[:, None] + numpy.arange(sequence_length + 1)].astype(numpy.int64)
    return windows[:, :-1], windows[:, 1:]


def leave_out(labels: NDArray[numpy.int64], starts: Starts, *, min_labels: int, seed: int) -> NDArray[numpy.int64]:
    """Return `labels`, (len(starts), sequence_length), with IGNORED in the place of those that do not count.

    Each sequence keeps its first ones, at least `min_labels`; how many depends on its place in the text and the seed.
    """
    length = labels.shape[1]
    kept = [numpy.random.default_rng([seed, int(start)]).integers(min_labels, length + 1) for start in starts]
    return numpy.where(numpy.arange(length) < numpy.array(kept)[:, None], labels, IGNORED)


@lru_cache(maxsize=2)
def _shuffled(windows: int, seed: int, epoch: int) -> Starts:
    return numpy.random.default_rng([seed, epoch]).permutation(windows)


def _sources(folder: Path) -> Iterator[Path]:
    """Yield the library's files in name order; what is installed below it is many times larger, and not looked at."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            if path.name not in _NOT_THE_LIBRARY:
                yield from _sources(path)
        elif path.suffix == ".py":
            yield path


def _join(files: Iterable[Path], cap: int) -> Bytes:
    pieces: list[bytes] = []
    total = 0
    for file in files:
        pieces.append(file.read_bytes())
        total += len(pieces[-1])
        if total >= cap:
            break
    return numpy.frombuffer(b"".join(pieces)[:cap], dtype=numpy.uint8)


def _join_folder(folder: Path) -> Bytes:
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and _is_text(file)]
    size = sum(file.stat().st_size for file in files)
    if size > FOLDER_CAP_BYTES:
        raise UsageError(f"data.path {folder}: {size} bytes in files; join them into one file, which is not read whole")
    return _join(files, FOLDER_CAP_BYTES)


def _map_file(file: Path) -> Bytes:
    if file.stat().st_size == 0:
        return numpy.empty(0, dtype=numpy.uint8)
    return numpy.memmap(file, dtype=numpy.uint8, mode="r")


def _is_text(file: Path) -> bool:
    with file.open("rb") as opened:
        return b"\0" not in opened.read(8192)
