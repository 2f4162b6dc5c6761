"""A stranger's file becomes text, or an error that says why not: size, encoding, folder, permission."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from gradwire.errors import UsageError

_FILE_SYSTEMS_WORD = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP),
    *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE),
}
"""What any path can meet, and no code here brings about: a folder that may not be entered, a full disk."""


def explain_refused_path(error: OSError) -> UsageError | None:
    """Return what an error of the file system means to the person who named the path; None where it may be a bug.

    `Path.exists` and its like ask the system, and raise where a folder above may not be entered or a name is too long.
    """
    if error.filename is None or error.errno not in _FILE_SYSTEMS_WORD:
        return None
    named = error.filename if isinstance(error.filename, int) else os.fsdecode(error.filename)
    return UsageError(f"{named}: {error.strerror}; name another path, or make this one usable")


def read_regular(path: Path, *, max_bytes: int) -> bytes:
    """Return at most the first `max_bytes` + 1 bytes of a regular file: one more than allowed says it is too large.

    A pipe would wait for ever for its writer and a device may never end, so neither is read. Raises OSError, with
    `strerror` saying why, also for what is not a regular file.
    """
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "is not a regular file", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(max_bytes + 1)
    finally:
        os.close(descriptor)


def read_encoded(path: Path, *, max_bytes: int, what: str) -> bytes:
    """Return the bytes of a file that may be UTF-8 text of at most `max_bytes` bytes.

    `what` names in messages what the file should be, for example "a configuration file". Raises UsageError, whose
    message does not name the file.
    """
    try:
        content = read_regular(path, max_bytes=max_bytes)
    except FileNotFoundError:
        raise UsageError("no such file") from None
    except IsADirectoryError:
        raise UsageError(f"is a folder; name {what} in it") from None
    except PermissionError:
        raise UsageError("no permission to read it") from None
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}") from None
    if len(content) > max_bytes:
        raise UsageError(f"larger than {max_bytes // 1024} KiB, which {what} is not")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UsageError("is UTF-16 text; save it as UTF-8")
    if b"\x00" in content:
        raise UsageError(f"is a binary file, not {what}")
    return content


def read_text(path: Path, *, max_bytes: int, what: str) -> str:
    """Return the UTF-8 text of a file as `read_encoded` takes it; a byte-order mark stays in the text.

    Raises UsageError, whose message does not name the file.
    """
    content = read_encoded(path, max_bytes=max_bytes, what=what)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - (content.rfind(b"\n", 0, error.start) + 1) + 1
        raise UsageError(
            f"line {line}, byte {column}: 0x{content[error.start]:02x} is not UTF-8; save it as UTF-8"
        ) from None
