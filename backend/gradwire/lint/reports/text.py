"""Findings as lines for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gradwire.lint.finding import Finding


def as_text(findings: Sequence[Finding]) -> str:
    """Every finding as FILE:LINE:COLUMN SEVERITY CODE PATH: message; what happens, the fix and the link below it."""
    return "\n".join(_lines(finding) for finding in findings)


def _lines(finding: Finding) -> str:
    subject = f" {finding.path}" if finding.path else ""
    lines = [
        f"{finding.file}:{finding.line}:{finding.column} {finding.severity} {finding.code}{subject}: {finding.message}",
        f"    really: {finding.effect}",
        f"    fix:    {finding.fix}" + (" (--fix does it)" if finding.edits else ""),
    ]
    if finding.url:
        lines.append(f"    see:    {finding.url}")
    return "\n".join(lines)


def summary(findings: Sequence[Finding], files: int) -> str:
    """How many findings of each severity in how many files, in one line."""
    counts = Counter(finding.severity for finding in findings)
    parts = [
        f"{counts[name]} {name}{'' if counts[name] == 1 else 's'}"
        for name in ("error", "warning", "note")
        if counts[name]
    ]
    safe = sum(bool(finding.edits) for finding in findings)
    fixable = f"; --fix can mend {safe}" if safe else ""
    return f"{files} file{'' if files == 1 else 's'}: {', '.join(parts) or 'nothing found'}{fixable}"
