"""Where runs go, with --out and without; no two go into one folder at the same time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gradwire.errors import UsageError

RUNS = Path("runs")


def plain_name(name: str) -> str:
    """Return a recipe's name as one word of a path: `cpu/ddp` is `cpu-ddp`."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name).strip(".") or "recipe"


def fresh_folder(stem: str) -> Path:
    """Return runs/STEM, or runs/STEM.2, .3, ... where that exists: earlier runs are kept."""
    folder, number = RUNS / stem, 2
    while folder.exists() or folder.is_symlink():
        folder, number = RUNS / f"{stem}.{number}", number + 1
    return folder


@contextmanager
def reserved_folder(stem: str) -> Iterator[Path]:
    """Make the folder of `fresh_folder`, which is then no other run's; what is still empty at the end is removed.

    Raises UsageError where it cannot be made.
    """
    folder = _reserve(stem)
    try:
        yield folder
    finally:
        # Neither is removed with something in it.
        with suppress(OSError):
            folder.rmdir()
            RUNS.rmdir()


@contextmanager
def held_folder(folder: Path) -> Iterator[None]:
    """Make the folder of --out where it is missing, and keep other runs out; what is still empty at the end is removed.

    Raises UsageError where it cannot be made, or another run is going on in it.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"{folder}: is not a folder; give --out a new path or an existing folder") from None
    except OSError as error:
        raise UsageError(f"{folder}: cannot make the folder: {error.strerror}; give --out another") from error
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)
        with suppress(OSError):
            for path in missing:
                path.rmdir()


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(f"{folder}: another run is going on in it; give --out another folder") from None
    except OSError:
        # A network's file system may not lock folders.
        return


def _reserve(stem: str) -> Path:
    while True:
        folder = fresh_folder(stem)
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            # Another run took it just now; only then is there a next one to try.
            if fresh_folder(stem) != folder:
                continue
            raise UsageError(f"{RUNS}: is not a folder; name another with --out") from None
        except OSError as error:
            raise UsageError(f"{folder}: cannot make the folder: {error.strerror}; name another with --out") from error
        return folder
