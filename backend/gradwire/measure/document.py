"""Reads and writes JSON documents of one schema: checked against it, written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from gradwire.errors import UsageError
from gradwire.reading import read_regular
from gradwire.resources import schema_kinds, schema_text

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

Document = TypeVar("Document")

# A step takes about 100 bytes, so this is a run of more than half a million steps.
_LARGEST_BYTES = 64 * 2**20


def read_document(path: Path, kind: str, into: type[Document]) -> Document:
    """Return the `kind` document (a schema's name) in the JSON file `path` as its dataclass `into`.

    Raises UsageError, with every violation, where the file cannot be read or is no such document.
    """
    content = _decode(_read_bytes(path, kind), path, kind)
    found = violations(content, kind)
    if found:
        raise UsageError("\n".join(f"{path}: {violation}" for violation in found))
    return msgspec.convert(content, into)


def document_text(document: object, kind: str) -> str:
    """Return `document` (a dataclass of `kind`) as JSON: sorted keys, two-space indent, newline at the end.

    Raises ValueError when it breaks its own schema: that is a bug, not a user's mistake.
    """
    content = msgspec.to_builtins(document)
    found = violations(content, kind)
    if found:
        raise ValueError(f"this {kind} breaks its own schema: " + "; ".join(found))
    return msgspec.json.format(msgspec.json.encode(content, order="sorted"), indent=2).decode() + "\n"


def violations(content: object, kind: str) -> list[str]:
    """Return what in `content`, plain JSON values, breaks the schema of `kind`: `place: message`, in document order."""
    errors = sorted(
        _validator(kind).iter_errors(content), key=lambda error: [str(part) for part in error.absolute_path]
    )
    return [f"{error.json_path.removeprefix('$').removeprefix('.') or kind}: {error.message}" for error in errors]


def write_text(path: Path, text: str) -> None:
    """Write `text`, as UTF-8, to `path`; see `write_bytes`."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path` in one piece: a reader, or a killed writer, leaves the old file or the new one.

    Makes the folder. Raises UsageError where the place cannot be written, or is there and no regular file: renaming
    over a device such as /dev/null destroys it.
    """
    if not path.name:
        raise UsageError(f"{path}: names no file; give a file in that folder")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{path}: cannot be written: is not a regular file; give the name of a file")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error


def check_target(path: Path, *, what: str, suffixes: Sequence[str], inputs: Iterable[Path]) -> None:
    """Raise UsageError where `what` must not be written to `path`: another suffix, or one of the files read."""
    if path.suffix.lower() not in suffixes:
        raise UsageError(f"{path}: {what} is written as {' or '.join(suffixes)}")
    if any(path.exists() and given.exists() and path.samefile(given) for given in inputs):
        raise UsageError(f"{path}: is one of the files that are read; give {what} another name")


def _read_bytes(path: Path, kind: str) -> bytes:
    try:
        content = read_regular(path, max_bytes=_LARGEST_BYTES)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read as a {kind}: {error.strerror or error}") from error
    if len(content) > _LARGEST_BYTES:
        raise UsageError(f"{path}: larger than {_LARGEST_BYTES // 2**20} MiB, so it is no {kind}")
    return content


def _decode(content: bytes, path: Path, kind: str) -> Any:
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: not a {kind}: not JSON ({error})") from error


@cache
def _validator(kind: str) -> Draft202012Validator:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend
    from referencing import Registry, Resource

    schemas = {name: json.loads(schema_text(name)) for name in schema_kinds()}
    registry: Registry[Any] = Registry().with_resources(
        (f"{name}.schema.json", Resource.from_contents(schema)) for name, schema in schemas.items()
    )
    # JSON Schema counts 4.0 as an integer; the dataclasses do not.
    exact = Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    )
    checker: type[Draft202012Validator] = extend(  # type: ignore[no-untyped-call]
        Draft202012Validator, type_checker=exact
    )
    return checker(schemas[kind], registry=registry)
