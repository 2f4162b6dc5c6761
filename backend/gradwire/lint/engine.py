"""Reads the files, puts those of one job together, and asks every rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gradwire.lint.finding import Finding
from gradwire.lint.rule import finding_of
from gradwire.lint.rules.table import RULES
from gradwire.targets.grouping import jobs_of, named_files
from gradwire.targets.job import LaunchFacts, Versions
from gradwire.targets.loading import Unreadable, load_document
from gradwire.targets.tree import Document, Kind

UNREADABLE = "RD101"
NOT_A_CONFIGURATION = "RD102"


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """What the linter found, and the texts it found it in; `texts` has no entry for a file it could not read."""

    findings: tuple[Finding, ...]
    texts: dict[str, str]


def lint_files(
    paths: Sequence[Path],
    *,
    facts: LaunchFacts | None = None,
    versions: Versions | None = None,
    trainer_arguments: Path | None = None,
    kind: Kind | None = None,
    together: bool = True,
) -> Checked:
    """Check configuration files.

    A DeepSpeed JSON that an Accelerate file or the Trainer's arguments name is checked with them. Where `together`
    is true, exactly one file of each kind is taken for one job. `kind` says what every file is; None: look at it.
    """
    findings: list[Finding] = []
    documents: list[Document] = []
    sources = [(path, kind) for path in paths]
    if trainer_arguments is not None:
        sources.append((trainer_arguments, "trainer"))
    for path, expected in sources:
        loaded = load_document(path, kind=expected)
        if isinstance(loaded, Unreadable):
            findings.append(_unreadable(loaded))
        else:
            documents.append(loaded)
    for path in named_files(documents):
        loaded = load_document(path, kind="deepspeed")
        if isinstance(loaded, Unreadable):
            findings.append(_unreadable(loaded))
        else:
            documents.append(loaded)
    findings.extend(
        check_documents(documents, facts=facts or LaunchFacts(), versions=versions or Versions(), together=together)
    )
    return Checked(
        findings=tuple(sorted(findings, key=_place)), texts={document.source: document.text for document in documents}
    )


def check_documents(
    documents: Sequence[Document], *, facts: LaunchFacts, versions: Versions, together: bool
) -> tuple[Finding, ...]:
    """Ask every rule about documents that were read already; findings in the order of files and lines."""
    found = [
        finding_of(rule, document, hit)
        for document, job in jobs_of(documents, facts, versions, together=together)
        for rule in RULES
        if rule.applies_to(document, job) and rule.holds_for(versions)
        for hit in rule.check(document, job)
    ]
    return tuple(sorted(found, key=_place))


def _place(finding: Finding) -> tuple[str, int, int, str, str]:
    return finding.file, finding.line, finding.column, finding.code, finding.path


def _unreadable(failure: Unreadable) -> Finding:
    return Finding(
        code=UNREADABLE if failure.is_text else NOT_A_CONFIGURATION,
        severity="error",
        file=failure.source,
        line=failure.line,
        column=failure.column,
        path="",
        message=failure.message,
        effect="nothing in it was checked",
        fix="give a DeepSpeed JSON, an Accelerate YAML or JSON, or the Trainer's arguments",
    )
