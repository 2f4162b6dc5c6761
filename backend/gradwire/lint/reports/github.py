"""Findings as workflow commands, which GitHub Actions shows beside the lines of a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from gradwire.lint.finding import Finding

_LEVELS = {"error": "error", "warning": "warning", "note": "notice"}


def as_github(findings: Sequence[Finding]) -> str:
    """One `::level file=...,line=...,col=...,title=...::message` a line."""
    return "\n".join(_command(finding) for finding in findings)


def _command(finding: Finding) -> str:
    title = f"{finding.code} {finding.path}".strip()
    message = f"{finding.message}. {finding.effect}. Fix: {finding.fix}" + (f" ({finding.url})" if finding.url else "")
    return (
        f"::{_LEVELS[finding.severity]} file={_property(finding.file)},line={finding.line},col={finding.column},"
        f"title={_property(title)}::{_data(message)}"
    )


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
