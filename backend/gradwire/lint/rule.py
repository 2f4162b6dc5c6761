"""One entry of the linter's table: a code, what it means, and the small function that looks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from gradwire.lint.finding import Edit, Finding, Severity
from gradwire.targets.job import Job, Versions
from gradwire.targets.schema import as_version
from gradwire.targets.tree import Document, Kind, Member, Node


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    """What a rule's function says: where, and the words. `severity` and `url` None: those of the rule."""

    at: Member | Node | int
    path: str
    message: str
    effect: str
    fix: str
    severity: Severity | None = None
    url: str | None = None
    edits: tuple[Edit, ...] = ()


Check = Callable[[Document, Job], Iterable[Hit]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """`check` gets one document of kind `reads` and the job that it belongs to.

    `needs` names the further kinds that the job must have. `since` and `until` bound the versions of the library that
    reads the file and behaves so: from the first, up to but without the second.
    """

    code: str
    name: str
    severity: Severity
    reads: Kind | Literal["any"]
    summary: str
    check: Check
    url: str | None = None
    needs: tuple[Kind, ...] = ()
    since: str | None = None
    until: str | None = None

    def holds_for(self, versions: Versions) -> bool:
        """Whether the library version that will read the file behaves so."""
        if self.since is None and self.until is None:
            return True
        version = as_version(versions.of(self.reads))
        if self.since is not None and version < as_version(self.since):
            return False
        return self.until is None or version < as_version(self.until)

    def applies_to(self, document: Document, job: Job) -> bool:
        """Whether the rule looks at this document, and the job has the other files that it needs."""
        return self.reads in ("any", document.kind) and all(job.document(kind) is not None for kind in self.needs)


def finding_of(rule: Rule, document: Document, hit: Hit) -> Finding:
    """The finding that a hit of a rule stands for."""
    offset = hit.at if isinstance(hit.at, int) else hit.at.start
    line, column = document.place(offset)
    return Finding(
        code=rule.code,
        severity=hit.severity or rule.severity,
        file=document.source,
        line=line,
        column=column,
        path=hit.path,
        message=hit.message,
        effect=hit.effect,
        fix=hit.fix,
        url=hit.url or rule.url,
        edits=hit.edits,
    )


def shown(value: Any) -> str:
    """A value as it is written in JSON, shortened."""
    match value:
        case bool():
            text = "true" if value else "false"
        case None:
            text = "null"
        case str():
            text = f'"{value}"'
        case float() if value.is_integer() and abs(value) < 1e15:
            text = str(int(value))
        case dict():
            text = "{...}" if value else "{}"
        case _:
            text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
