"""Puts the files of one job together: those that name each other, or the only one of each kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from gradwire.errors import UsageError
from gradwire.targets.job import Job, LaunchFacts, Versions
from gradwire.targets.loading import Unreadable, load_document
from gradwire.targets.tree import Document, Kind


def jobs_of(
    documents: Sequence[Document], facts: LaunchFacts, versions: Versions, *, together: bool
) -> Iterator[tuple[Document, Job]]:
    """Each document with the job it belongs to: the files that name each other, or, `together`, one of each kind."""
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


def named_files(documents: list[Document]) -> list[Path]:
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


def one_job(
    paths: Sequence[Path], *, facts: LaunchFacts, trainer_arguments: Path | None = None, kind: Kind | None = None
) -> Job:
    """Return the one job that files make together, with the DeepSpeed JSON that one of them names.

    Raises UsageError where a file cannot be read, or where two files are of one kind.
    """
    sources: list[tuple[Path, Kind | None]] = [(path, kind) for path in paths]
    if trainer_arguments is not None:
        sources.append((trainer_arguments, "trainer"))
    documents = [_readable(path, expected) for path, expected in sources]
    if not any(document.kind == "deepspeed" for document in documents):
        documents += [_readable(path, "deepspeed") for path in named_files(documents)]
    by_kind: dict[Kind, Document] = {}
    for document in documents:
        if document.kind in by_kind:
            raise UsageError(
                f"{by_kind[document.kind].source} and {document.source} are both of kind {document.kind}; "
                "one job has one of each kind (--kind says what a file is)"
            )
        by_kind[document.kind] = document
    return Job(
        deepspeed=by_kind.get("deepspeed"),
        accelerate=by_kind.get("accelerate"),
        trainer=by_kind.get("trainer"),
        facts=facts,
    )


def _readable(path: Path, kind: Kind | None) -> Document:
    loaded = load_document(path, kind=kind)
    if isinstance(loaded, Unreadable):
        raise UsageError(str(loaded))
    return loaded
