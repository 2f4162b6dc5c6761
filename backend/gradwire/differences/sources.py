"""Says where two files of one job disagree with each other: what the linter finds between them."""

from __future__ import annotations

from gradwire.lint.engine import check_documents
from gradwire.lint.finding import Finding
from gradwire.targets.job import Job

_BETWEEN_FILES = frozenset(
    {"AC301", "PR102", "PR104", "PR105", "PR106", "PR107", "TR101", "TR102", "TR103", "TR104", "TR201", "TR202"}
)


def disagreements(job: Job) -> tuple[Finding, ...]:
    """Return the findings about values that two files of a job, or a file and the launch, say differently."""
    documents = [each for each in (job.accelerate, job.deepspeed, job.trainer) if each is not None]
    found = check_documents(documents, facts=job.facts, versions=job.versions, together=True)
    return tuple(finding for finding in found if finding.code in _BETWEEN_FILES)
