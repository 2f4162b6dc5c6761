"""Writes one file of a result: whole or not at all, and never over another unless told to."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from gradwire.errors import UsageError


def check_free(path: Path, *, force: bool) -> None:
    """Raise UsageError where `path` cannot be written: something is there already, or its folder is missing."""
    if path.is_symlink() or path.exists():
        if not path.is_file() or path.is_symlink():
            raise UsageError(f"{path}: is no regular file; name another")
        if not force:
            raise UsageError(f"{path}: is there already; name another, or say --force to write over it")
    elif not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}")


def write_new(path: Path, text: str, *, force: bool) -> None:
    """Write `text` to `path`; raises UsageError where that cannot be done, and then nothing has changed."""
    check_free(path, force=force)
    written = None
    try:
        with tempfile.NamedTemporaryFile("wb", dir=path.parent, prefix=".gradwire-", delete=False) as file:
            written = Path(file.name)
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        # NamedTemporaryFile makes a file that only its owner may read.
        written.chmod(0o666 & ~_umask())
        if force:
            written.replace(path)
        else:
            # Unlike a rename, a link fails where another program was faster.
            os.link(written, path)
    except FileExistsError:
        raise UsageError(f"{path}: is there already; name another, or say --force to write over it") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        if written is not None:
            with suppress(OSError):
                written.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
