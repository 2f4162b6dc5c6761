"""What a program ends up with from its configuration file: each value, where it comes from, and what does nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gradwire.targets.tree import Document, Member

Origin = Literal["written", "filled", "assumed", "default", "derived"]
"""written: in a file; filled: put there by the Trainer or Accelerate from what is known of the launch; assumed: put
there from something that is not known here, and a default was taken; default: the library's own; derived: follows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Effective:
    """One value that the library ends up with, in its own spelling, at a dotted path in its own spelling.

    `member` is the key that says it and `document` the file that this key is in; None: no file says it.
    `note` says how it came about where that is not plain.
    """

    path: str
    value: Any
    origin: Origin
    document: Document | None = None
    member: Member | None = None
    note: str | None = None

    @property
    def place(self) -> tuple[str, int, int] | None:
        """File, line and column of the key, from 1; None where no file says it."""
        if self.document is None or self.member is None:
            return None
        return (self.document.source, *self.document.place(self.member.start))


@dataclass(frozen=True, kw_only=True, slots=True)
class Passed:
    """A written key that has no effect, or that the library refuses; `reason` says why."""

    path: str
    document: Document
    member: Member
    reason: str

    @property
    def place(self) -> tuple[str, int, int]:
        """File, line and column of the key, from 1."""
        return (self.document.source, *self.document.place(self.member.start))


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """A configuration as its program reads it.

    `values` has what is written, filled in or derived, by path; a path that is not there has the library's default.
    `idle` are the written keys that do nothing, `refused` those at which the library stops.
    """

    values: Mapping[str, Effective]
    idle: tuple[Passed, ...] = ()
    refused: tuple[Passed, ...] = ()

    def value(self, path: str, default: Any = None) -> Any:
        """The value at a path, or `default` where nothing says it."""
        found = self.values.get(path)
        return default if found is None else found.value
