"""Lints texts without files."""

from __future__ import annotations

import json
from typing import Any

from gradwire.lint.engine import check_documents
from gradwire.lint.finding import Finding
from gradwire.targets.job import LaunchFacts, Versions
from gradwire.targets.loading import parse_document
from gradwire.targets.tree import Document, Kind


def document(config: dict[str, Any] | str, *, kind: Kind, name: str = "") -> Document:
    """A configuration as a document: a mapping is written as JSON, a text is read as it stands."""
    text = config if isinstance(config, str) else json.dumps(config, indent=1)
    arguments = "trainer.yaml" if isinstance(config, str) else "trainer.json"
    source = name or {"deepspeed": "ds.json", "accelerate": "accelerate.yaml", "trainer": arguments}[kind]
    parsed = parse_document(text, source=source, kind=kind)
    assert isinstance(parsed, Document), parsed
    return parsed


def lint(
    deepspeed: dict[str, Any] | str | None = None,
    *,
    accelerate: str | None = None,
    trainer: dict[str, Any] | str | None = None,
    facts: LaunchFacts | None = None,
    versions: Versions | None = None,
) -> tuple[Finding, ...]:
    """The findings of one job."""
    documents = []
    if deepspeed is not None:
        documents.append(document(deepspeed, kind="deepspeed"))
    if accelerate is not None:
        documents.append(document(accelerate, kind="accelerate"))
    if trainer is not None:
        documents.append(document(trainer, kind="trainer"))
    return check_documents(documents, facts=facts or LaunchFacts(), versions=versions or Versions(), together=True)


def codes(findings: tuple[Finding, ...], *severities: str) -> list[str]:
    """Codes of the findings, of these severities alone where some are given."""
    return [finding.code for finding in findings if not severities or finding.severity in severities]
