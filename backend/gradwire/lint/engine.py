"""Reads the files, puts those of one job together, and asks every rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gradwire.errors import UsageError
from gradwire.lint.finding import Finding
from gradwire.lint.hjson_text import TextError, parse_hjson
from gradwire.lint.job import Job, LaunchFacts, Versions
from gradwire.lint.rule import finding_of
from gradwire.lint.rules.table import RULES
from gradwire.lint.schema import load_schema
from gradwire.lint.tree import Document, Kind, Repeat, Syntax
from gradwire.lint.yaml_text import parse_yaml
from gradwire.reading import read_text

MAX_BYTES = 1024 * 1024
"""Largest file that is read: a hundred times a usual one."""

UNREADABLE = "RD101"
NOT_A_CONFIGURATION = "RD102"

_TRAINER_ARGUMENTS = frozenset(
    {
        "per_device_train_batch_size", "per_device_eval_batch_size", "output_dir", "num_train_epochs", "learning_rate",
        "lr_scheduler_type", "max_grad_norm", "warmup_ratio", "warmup_steps", "max_steps", "save_strategy",
        "logging_steps", "eval_strategy", "evaluation_strategy", "gradient_checkpointing", "adam_beta1",
        "accelerator_config", "optim", "deepspeed",
    }
)  # fmt: skip


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
        if isinstance(loaded, Finding):
            findings.append(loaded)
        else:
            documents.append(loaded)
    for path in _named_files(documents):
        loaded = load_document(path, kind="deepspeed")
        if isinstance(loaded, Finding):
            findings.append(loaded)
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
        for document, job in _jobs(documents, facts, versions, together=together)
        for rule in RULES
        if rule.applies_to(document, job) and rule.holds_for(versions)
        for hit in rule.check(document, job)
    ]
    return tuple(sorted(found, key=_place))


def _place(finding: Finding) -> tuple[str, int, int, str, str]:
    return finding.file, finding.line, finding.column, finding.code, finding.path


def load_document(path: Path, *, kind: Kind | None = None) -> Document | Finding:
    """Read one file; a Finding where it cannot be read."""
    source = str(path)
    try:
        text = read_text(path, max_bytes=MAX_BYTES, what="a configuration file")
    except UsageError as error:
        return _unreadable(source, 1, 1, str(error))
    return parse_document(text, source=source, kind=kind)


def parse_document(text: str, *, source: str, kind: Kind | None = None) -> Document | Finding:
    """Read the text of one file; the suffix of `source` says whether it is YAML."""
    repeats: list[Repeat]
    strict_error: str | None = None
    syntax: Syntax = "yaml"
    try:
        if source.lower().endswith((".yaml", ".yml")):
            root, repeats = parse_yaml(text)
        else:
            root, repeats, syntax, strict_error = parse_hjson(text)
    except TextError as error:
        before = text[: error.offset]
        return _unreadable(source, before.count("\n") + 1, error.offset - (before.rfind("\n") + 1) + 1, str(error))
    if root.members is None:
        return _unreadable(source, 1, 1, "the top level is no mapping of keys to values", code=NOT_A_CONFIGURATION)
    return Document(
        source=source,
        text=text,
        kind=kind or kind_of(root.members, syntax),
        syntax=syntax,
        root=root,
        repeats=tuple(repeats),
        strict_error=strict_error,
        starts_with_mark=text.startswith("\ufeff"),
    )


def _unreadable(source: str, line: int, column: int, message: str, *, code: str = UNREADABLE) -> Finding:
    return Finding(
        code=code,
        severity="error",
        file=source,
        line=line,
        column=column,
        path="",
        message=message,
        effect="nothing in it was checked",
        fix="give a DeepSpeed JSON, an Accelerate YAML or JSON, or the Trainer's arguments",
    )


def kind_of(names: Iterable[str], syntax: Syntax) -> Kind:
    """What a file configures, by the keys at its top level."""
    written = set(names)
    own = load_schema("accelerate")["$defs"]["LocalMachine"]["properties"].keys() - {"fp16"}
    scores: dict[Kind, int] = {
        "accelerate": 2 * len(written & {"distributed_type", "compute_environment"}) + len(written & own),
        "trainer": len(written & _TRAINER_ARGUMENTS),
        "deepspeed": len(written & load_schema("deepspeed")["properties"].keys()),
    }
    best = max(scores.values())
    usual: Kind = "accelerate" if syntax == "yaml" else "deepspeed"
    if best == 0 or scores[usual] == best:
        return usual
    return next(kind for kind, score in scores.items() if score == best)


def _jobs(
    documents: Sequence[Document], facts: LaunchFacts, versions: Versions, *, together: bool
) -> Iterable[tuple[Document, Job]]:
    by_kind: dict[Kind, list[Document]] = {"deepspeed": [], "accelerate": [], "trainer": []}
    for document in documents:
        by_kind[document.kind].append(document)
    one_job = together and all(len(found) <= 1 for found in by_kind.values())
    for document in documents:
        parts: dict[Kind, Document | None] = {document.kind: document}
        for other in ("deepspeed", "accelerate", "trainer"):
            if other == document.kind:
                continue
            named = [each for each in by_kind[other] if _names(document, each) or _names(each, document)]
            if len(named) == 1:
                parts[other] = named[0]
            elif one_job and by_kind[other] and not (_names_another(document) or _names_another(by_kind[other][0])):
                parts[other] = by_kind[other][0]
        yield document, Job(
            deepspeed=parts.get("deepspeed"), accelerate=parts.get("accelerate"), trainer=parts.get("trainer"),
            facts=facts, versions=versions,
        )  # fmt: skip


def _named_file(document: Document) -> str | None:
    path = {"accelerate": "deepspeed_config.deepspeed_config_file", "trainer": "deepspeed"}.get(document.kind)
    name = document.value(path) if path else None
    return name if isinstance(name, str) and name not in ("", "none") else None


def _named_files(documents: list[Document]) -> list[Path]:
    """DeepSpeed JSONs that the files name by a relative path and that are beside them or in the working folder."""
    known = {Path(document.source).resolve() for document in documents}
    found: dict[Path, Path] = {}
    for document in documents:
        name = _named_file(document)
        if name is None or Path(name).is_absolute() or not name.lower().endswith((".json", ".hjson")):
            continue
        for path in (Path(document.source).parent / name, Path(name)):
            if path.is_file() and path.resolve() not in known:
                found.setdefault(path.resolve(), path)
                break
    return list(found.values())


def _names(document: Document, other: Document) -> bool:
    """Whether one file names the other; by its base name, for paths are relative to where the job starts."""
    name = _named_file(document)
    return name is not None and other.kind == "deepspeed" and Path(name).name == Path(other.source).name


def _names_another(document: Document) -> bool:
    return _named_file(document) is not None
