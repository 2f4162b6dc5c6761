"""Rules for the text of a file, whatever it configures: repeated keys, strict JSON, byte-order marks."""

from __future__ import annotations

from collections.abc import Iterator

from gradwire.lint.rule import Hit, Rule, shown
from gradwire.targets.job import Job
from gradwire.targets.tree import Document


def repeated_keys(document: Document, job: Job) -> Iterator[Hit]:
    """A key that stands twice in one mapping."""
    for repeat in document.repeats:
        line, column = document.place(repeat.kept.start)
        alone = document.kind == "deepspeed"
        yield Hit(
            at=repeat.lost,
            path=repeat.path,
            message=f"{repeat.lost.name} is written again at line {line} column {column}",
            effect=("DeepSpeed refuses the file; " if alone else "")
            + f"{'Accelerate and the Trainer take' if alone else 'the reader takes'} the last one without a word: "
            f"{shown(repeat.kept.node.data)}, not {shown(repeat.lost.node.data)}",
            fix="keep one",
            severity="warning" if repeat.kept.node.data == repeat.lost.node.data and not alone else None,
        )


def not_strict(document: Document, job: Job) -> Iterator[Hit]:
    """Text that only an hjson reader takes."""
    if document.syntax != "hjson" or document.strict_error is None:
        return
    strictly_read = document.kind != "deepspeed" or job.accelerate is not None or job.trainer is not None
    yield Hit(
        at=document.root,
        path="",
        message=f"not strict JSON: {document.strict_error}",
        effect="the Trainer and Accelerate refuse the file"
        + ("; DeepSpeed alone reads it, as hjson" if document.kind == "deepspeed" else ""),
        fix="put keys and text in quotes, and take out comments and last commas",
        severity="error" if strictly_read else None,
    )


def byte_order_mark(document: Document, job: Job) -> Iterator[Hit]:
    """A byte-order mark before strict JSON."""
    if document.starts_with_mark and document.syntax != "yaml":
        yield Hit(
            at=0,
            path="",
            message="the file starts with a byte-order mark",
            effect="the Trainer and Accelerate refuse it: unexpected UTF-8 BOM"
            + ("; DeepSpeed alone reads it" if document.kind == "deepspeed" else ""),
            fix="save it as UTF-8 without a byte-order mark",
            severity=None if document.kind == "deepspeed" and not (job.accelerate or job.trainer) else "error",
        )


RULES = (
    Rule(
        code="RD201",
        name="repeated-key",
        severity="error",
        reads="any",
        check=repeated_keys,
        summary="A key that stands twice in one mapping.",
    ),
    Rule(
        code="RD202",
        name="not-strict-json",
        severity="warning",
        reads="any",
        check=not_strict,
        summary="Text that only an hjson reader takes.",
    ),
    Rule(
        code="RD203",
        name="byte-order-mark",
        severity="warning",
        reads="any",
        check=byte_order_mark,
        summary="A byte-order mark before strict JSON.",
    ),
)
