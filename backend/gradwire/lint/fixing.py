"""Applies the safe fixes of a file and shows what changes."""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gradwire.errors import UsageError
from gradwire.lint.finding import Edit, Finding


@dataclass(frozen=True, kw_only=True, slots=True)
class Fixed:
    """One file before and after its safe fixes; `codes` are those of the findings that were fixed."""

    source: str
    before: str
    after: str
    codes: tuple[str, ...]

    def diff(self) -> str:
        """What changes, as a unified diff."""
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True),
            self.after.splitlines(keepends=True),
            f"a/{self.source}",
            f"b/{self.source}",
        )
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def fix_texts(findings: Iterable[Finding], texts: dict[str, str]) -> list[Fixed]:
    """The files that have safe fixes, fixed; edits that touch the same text are left for the next time."""
    fixed = []
    by_file: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.edits and finding.file in texts:
            by_file.setdefault(finding.file, []).append(finding)
    for source, found in by_file.items():
        chosen: list[Edit] = []
        codes: list[str] = []
        for finding in found:
            if not any(_overlap(edit, taken) for edit in finding.edits for taken in chosen):
                chosen.extend(finding.edits)
                codes.append(finding.code)
        text = texts[source]
        for edit in sorted(chosen, key=lambda each: each.start, reverse=True):
            text = text[: edit.start] + edit.text + text[edit.end :]
        fixed.append(Fixed(source=source, before=texts[source], after=text, codes=tuple(codes)))
    return fixed


def _overlap(one: Edit, other: Edit) -> bool:
    return one.start < other.end and other.start < one.end


def write_fixed(fixed: Fixed) -> None:
    """Put the fixed text in the file's place, whole or not at all; permissions stay.

    Raises UsageError where the folder or the file cannot be written, or the file has changed since it was read.
    """
    path = Path(fixed.source)
    try:
        if path.read_bytes() != fixed.before.encode():
            raise UsageError(f"{fixed.source}: changed while it was being checked; nothing was written")
        mode = path.stat().st_mode
        with tempfile.NamedTemporaryFile(
            "wb", dir=path.resolve().parent, prefix=f".{path.name}.", delete=False
        ) as file:
            file.write(fixed.after.encode())
        Path(file.name).chmod(mode)
        Path(file.name).replace(path.resolve())
    except OSError as error:
        raise UsageError(f"{fixed.source}: cannot be written: {error.strerror}; it is unchanged") from None
