"""Keeps a fault of the watching from reaching the watched command."""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress
from types import TracebackType


class Harmless:
    """A context that an error ends without ending anything else; after the first one, nothing is watched any more.

    The command that is measured belongs to somebody else: whatever goes wrong here must not break their training. This
    is the one place of Gradwire that lets no error through, and it says what it was on stderr.
    """

    def __init__(self) -> None:
        self.is_broken = False

    def __enter__(self) -> Harmless:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if kind is None or not issubclass(kind, Exception):
            return False
        self.is_broken = True
        # A full disk is no fault of the code's.
        told = f": {error}\n"
        if not isinstance(error, OSError):
            told = ". Please report:\n" + "".join(traceback.format_exception(kind, error, trace))
        # There may be no stderr, or it goes to a disk that is full.
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(f"gradwire measure: stopped watching this process, whose run goes on{told}")
        return True
