"""What the target schemas know about a key: its type, where it acts, its other names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from gradwire.resources import schema_text
from gradwire.targets.tree import Document, Member, Node, joined

Spec = dict[str, Any]
"""The JSON Schema of one key or one section, with the `x-` words that the schema's $comment explains."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Visit:
    """One key of a document beside what the schema says: `spec` is None for a key that the section does not list."""

    path: str
    member: Member
    spec: Spec | None
    section: Spec
    section_path: str
    siblings: dict[str, Any]

    @property
    def says(self) -> Spec:
        """What the schema says of the key: nothing of one that the section does not list."""
        return self.spec or {}


@cache
def load_schema(kind: str) -> Spec:
    """The schema of one kind of file: deepspeed, accelerate, or the recipe's where it is to be told from those."""
    loaded: Spec = json.loads(schema_text(kind))
    return loaded


def checked_version(kind: str) -> str:
    """The newest library version that the schema was checked against."""
    return str(load_schema(kind)["x-library"]["versions"][-1])


def root_section(document: Document) -> Spec:
    """The section at the top of a document."""
    if document.kind == "accelerate" and document.value("compute_environment") == "AMAZON_SAGEMAKER":
        section: Spec = load_schema("accelerate")["$defs"]["SageMaker"]
        return section
    return _root_of(document.kind)


def _root_of(kind: str) -> Spec:
    schema = load_schema(kind)
    section: Spec = schema if kind == "deepspeed" else schema["$defs"]["LocalMachine"]
    return section


def section_of(kind: str, spec: Spec) -> Spec | None:
    """The section that a key holds, or None where it holds a scalar."""
    for part in (spec, *spec.get("anyOf", ())):
        if "$ref" in part:
            section: Spec = load_schema(kind)["$defs"][part["$ref"].removeprefix("#/$defs/")]
            return section
    return None


def spec_at(kind: str, path: str) -> Spec | None:
    """What the schema says about a dotted path of a file for this machine, or None."""
    section: Spec | None = _root_of(kind)
    spec: Spec | None = None
    for name in path.split("."):
        spec = (section or {}).get("properties", {}).get(name)
        if spec is None:
            return None
        section = section_of(kind, spec)
    return spec


@lru_cache(maxsize=4)
def visit(document: Document) -> tuple[Visit, ...]:
    """Every key of a document, section by section, in the order of the file."""
    return tuple(_visit_section(document.kind, document.root, root_section(document), ""))


def _visit_section(kind: str, node: Node, section: Spec, path: str) -> Iterator[Visit]:
    siblings = node.data if isinstance(node.data, dict) else {}
    for name, member in (node.members or {}).items():
        here = joined(path, name)
        spec = key_spec(section, name)
        yield Visit(path=here, member=member, spec=spec, section=section, section_path=path, siblings=siblings)
        if spec is not None:
            yield from _visit_below(kind, member.node, spec, here)


def _visit_below(kind: str, node: Node, spec: Spec, path: str) -> Iterator[Visit]:
    section = section_of(kind, spec)
    if node.members is not None and section is not None:
        yield from _visit_section(kind, node, section, path)
    entries = spec.get("additionalProperties")
    if node.members is not None and isinstance(entries, dict):
        for name, member in node.members.items():
            yield from _visit_below(kind, member.node, entries, joined(path, name))
    items = spec.get("items")
    if isinstance(items, dict):
        for index, item in enumerate(node.items or ()):
            yield from _visit_below(kind, item, items, f"{path}[{index}]")


def key_spec(section: Spec, name: str) -> Spec | None:
    """What a section says about a key; a section with an x-prefix knows its keys with and without it."""
    properties: dict[str, Spec] = section["properties"]
    prefix: str | None = section.get("x-prefix")
    if name not in properties and prefix and not name.startswith(prefix.rstrip("_")):
        return properties.get(prefix + name)
    return properties.get(name)


def member_of(document: Document, section: str, name: str) -> Member | None:
    """The key of a section by its full name, written so or without the section's prefix; of both, the later one."""
    spec = root_section(document)["properties"].get(section)
    prefix = ((section_of(document.kind, spec) if spec else None) or {}).get("x-prefix", "")
    short = name.removeprefix(prefix)
    holder = document.member(section)
    found = [member for key, member in ((holder and holder.node.members) or {}).items() if key in (name, short)]
    return found[-1] if found else None


def value_of(document: Document, section: str, name: str, default: Any = None) -> Any:
    """The value of a key that `member_of` finds, or `default` where the key is absent."""
    found = member_of(document, section, name)
    return default if found is None else found.node.data


@cache
def known_paths(kind: str) -> dict[str, tuple[str, ...]]:
    """For every key name, the dotted paths at which the schema knows it."""
    found: dict[str, list[str]] = {}
    todo: list[tuple[Spec, str]] = [(_root_of(kind), "")]
    while todo:
        section, path = todo.pop()
        for name, spec in section["properties"].items():
            here = joined(path, name)
            found.setdefault(name, []).append(here)
            below = section_of(kind, spec)
            if below is not None and here.count(".") < 6:
                todo.append((below, here))
    return {name: tuple(sorted(paths, key=lambda each: (each.count("."), each))) for name, paths in found.items()}


def is_known_in(spec: Spec, version: str) -> bool:
    """Whether the library version already knows the key."""
    since = spec.get("x-since")
    return since is None or as_version(version) >= as_version(since)


def as_version(text: str) -> tuple[int, ...]:
    """A dotted version as numbers that compare."""
    return tuple(int(part) for part in text.split(".") if part.isdigit())
