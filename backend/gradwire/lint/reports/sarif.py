"""Findings as SARIF 2.1.0, which code hosts and editors read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from gradwire.lint.finding import Finding
from gradwire.lint.rules.table import RULES

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def as_sarif(findings: Sequence[Finding], *, version: str) -> dict[str, Any]:
    """One SARIF run with the rules that were hit; `version` is Gradwire's."""
    rules = {rule.code: rule for rule in RULES}
    codes = sorted({finding.code for finding in findings})
    described = [
        {
            "id": code,
            "name": rules[code].name if code in rules else "unreadable-file",
            "shortDescription": {"text": rules[code].summary if code in rules else "A file that cannot be read."},
        }
        | ({"helpUri": rules[code].url} if code in rules and rules[code].url else {})
        for code in codes
    ]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "gradwire lint", "version": version, "rules": described}},
                "columnKind": "unicodeCodePoints",
                "results": [_result(finding, codes.index(finding.code)) for finding in findings],
            }
        ],
    }


def _result(finding: Finding, index: int) -> dict[str, Any]:
    subject = f"{finding.path}: " if finding.path else ""
    return {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": finding.severity,
        "message": {"text": f"{subject}{finding.message}. {finding.effect}. Fix: {finding.fix}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote(finding.file)},
                    "region": {"startLine": finding.line, "startColumn": finding.column},
                }
            }
        ],
    }
