"""What the linter says about one place in one file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """Replace the text between two offsets."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that the library will do otherwise than the file says.

    `effect` is what will really happen, `fix` the way out in words. `line` and `column` count from 1. `edits`
    is the fix as text, present only where it is safe: it changes nothing that works, and leaves one reading.
    """

    code: str
    severity: Severity
    file: str
    line: int
    column: int
    path: str
    message: str
    effect: str
    fix: str
    url: str | None = None
    edits: tuple[Edit, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The finding as it stands in the JSON report; without its edits."""
        names = ("code", "severity", "file", "line", "column", "path", "message", "effect", "fix", "url")
        return {name: getattr(self, name) for name in names}
