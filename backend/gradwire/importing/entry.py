"""What became of each key of an imported configuration, and what the recipe takes from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from gradwire.targets.effective import Effective, Passed

Outcome = Literal["carried", "explicit", "kept", "idle", "refused"]
"""carried: a recipe key says it; explicit: nothing said it, a hidden default is written out; kept: in the recipe's
section for the backend; idle: the program ignores it, so it is left out; refused: no recipe can say it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One key: where it stands, its value as the program takes it, what became of it.

    `file`, `line` and `column` are None for what no file says. `into` is the recipe's key, None where there is none.
    """

    outcome: Outcome
    path: str
    value: Any
    file: str | None
    line: int | None
    column: int | None
    into: str | None
    note: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Assumption:
    """A recipe key whose value the files do not settle: what it is set to, and why."""

    path: str
    value: Any
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Carried:
    """A recipe key that the files settle: its dotted path, its value, and the keys of the files that say so.

    `assumed` says that the value rests on something that is not known here, in the words of `note`.
    """

    path: str
    value: Any
    sources: tuple[Effective, ...]
    note: str | None = None

    @property
    def assumed(self) -> Effective | None:
        """The source that rests on something unknown, or None."""
        return next((source for source in self.sources if source.origin == "assumed"), None)


def entry_of(source: Effective, outcome: Outcome, *, into: str | None, note: str | None = None) -> Entry:
    """The entry of a value that the program ends up with."""
    file, line, column = source.place or (None, None, None)
    if outcome != "refused" and source.member is None and source.origin != "written":
        outcome = "explicit"
    words = "; ".join(part for part in (source.note, note) if part)
    return Entry(
        outcome=outcome,
        path=source.path,
        value=source.value,
        file=file,
        line=line,
        column=column,
        into=into,
        note=words or None,
    )


def entry_of_passed(passed: Passed, outcome: Outcome) -> Entry:
    """The entry of a key that the program ignores or refuses."""
    file, line, column = passed.place
    value = passed.member.node.data
    return Entry(
        outcome=outcome,
        path=passed.path,
        value=value,
        file=file,
        line=line,
        column=column,
        into=None,
        note=passed.reason,
    )
