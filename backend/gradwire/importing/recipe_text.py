"""Writes an imported recipe as YAML 1.2, with the comments of the keys that it carries."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradwire.importing.engine import Imported
from gradwire.importing.lowered import nested
from gradwire.resources import schema_text
from gradwire.targets.comments import Comments, Remarks, comments_of
from gradwire.targets.effective import Effective
from gradwire.targets.tree import Document, walk

SCHEMA_LINES = (
    "# yaml-language-server: $schema=recipe.schema.json",
    "# `gradwire schema recipe > recipe.schema.json` puts that schema beside this file, for editors.",
)

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_/-]*(?:\.[A-Za-z0-9_-]+)*")
_WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf")
_UNPRINTABLE = re.compile(r"[^\t\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u2028\u2029]")
_MAX_SUMMARY = 120


def recipe_text(imported: Imported, documents: Sequence[Document]) -> str:
    """Return the text of the recipe; `documents` are the files that it was imported from."""
    comments = {document.source: comments_of(document) for document in documents}
    remarks = _remarks(imported, documents, comments)
    names = " and ".join(Path(source).name for source in imported.sources)
    lines = [*SCHEMA_LINES]
    summary = f"Imported from {names}"
    if len(summary) <= _MAX_SUMMARY and not _UNPRINTABLE.search(summary):
        lines.append(f"summary: {_scalar(summary)}")
    top = [line for found in comments.values() for line in found.top]
    lines += ["", *(f"# {_clean(line)}" for line in top)] if top else []
    for name, value in _in_schema_order(nested(imported.values)).items():
        lines += ["", *_lines({name: value}, (), remarks)]
    return "\n".join(lines) + "\n"


def _in_schema_order(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with its keys in the order in which the recipe's schema lists them."""
    schema = json.loads(schema_text("recipe"))
    return _ordered(document, schema, schema["$defs"])


def _ordered(document: Mapping[str, Any], section: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    ordered = {}
    for name, spec in section.get("properties", {}).items():
        if name not in document:
            continue
        value = document[name]
        references = [part["$ref"] for part in (spec, *spec.get("anyOf", ())) if "$ref" in part]
        for reference in references:
            if isinstance(value, Mapping):
                value = _ordered(value, definitions[reference.removeprefix("#/$defs/")], definitions)
        ordered[name] = value
    return ordered


@dataclass(slots=True)
class _Remarked:
    above: list[str] = field(default_factory=list)
    behind: list[str] = field(default_factory=list)


def _remarks(
    imported: Imported, documents: Sequence[Document], comments: Mapping[str, Comments]
) -> dict[tuple[str, ...], _Remarked]:
    """Comments by the path of the recipe's key; those of a section go above the first of its keys that is carried."""
    places: list[tuple[tuple[str, ...], Effective]] = [
        (tuple(each.path.split(".")), source) for each in imported.carried for source in each.sources
    ]
    places += [
        (("backends", each.section, *each.effective.path.split(".")), each.effective)
        for each in imported.kept
        if each.refused is None
    ]
    found: dict[tuple[str, ...], _Remarked] = {}
    for document in documents:
        of = comments[document.source].of
        if not of:
            continue
        carried: dict[int, tuple[str, ...]] = {}
        for path, source in places:
            if source.document is document and source.member is not None:
                carried.setdefault(source.member.start, path)
        for path, remarks, is_section in _owners(document, of, carried):
            place = found.setdefault(path, _Remarked())
            place.above += remarks.above + (remarks.behind if is_section else [])
            place.behind += [] if is_section else remarks.behind
    return found


def _owners(
    document: Document, of: Mapping[int, Remarks], carried: Mapping[int, tuple[str, ...]]
) -> Iterator[tuple[tuple[str, ...], Remarks, bool]]:
    for _, member in walk(document.root):
        remarks = of.get(member.start)
        if remarks is None:
            continue
        if member.start in carried:
            yield carried[member.start], remarks, False
        elif member.node.members:
            below = [start for _, inner in walk(member.node) if (start := inner.start) in carried]
            if below:
                yield carried[min(below)], remarks, True


def _lines(
    section: Mapping[str, Any], path: tuple[str, ...], remarks: Mapping[tuple[str, ...], _Remarked]
) -> list[str]:
    lines = []
    indent = "  " * len(path)
    for name, value in section.items():
        here = (*path, name)
        own = remarks.get(here, _Remarked())
        lines += [f"{indent}# {_clean(line)}" for line in own.above]
        behind = f"  # {_clean('; '.join(own.behind))}" if own.behind else ""
        if isinstance(value, Mapping) and value:
            lines.append(f"{indent}{_scalar(name)}:{behind}")
            lines += _lines(value, here, remarks)
        else:
            lines.append(f"{indent}{_scalar(name)}: {_inline(value)}{behind}")
    return lines


def _inline(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_inline(item) for item in value)}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_quoted(str(name))}: {_inline(item)}" for name, item in value.items()) + "}"
    return _scalar(value)


def _scalar(value: Any) -> str:
    """Return a scalar as YAML 1.2 reads it back, and YAML 1.1 too."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, int):
        return str(value)
    text = str(value)
    is_plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return text if is_plain else _quoted(text)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=bool(_UNPRINTABLE.search(text)))


def _float(value: float) -> str:
    text = repr(value)
    if "e" not in text:
        return text
    digits, exponent = text.split("e")
    # YAML 1.1 wants a point and a signed exponent.
    return f"{digits if '.' in digits else digits + '.0'}e{exponent if exponent[0] in '+-' else '+' + exponent}"


def _clean(line: str) -> str:
    return _UNPRINTABLE.sub(" ", line)
