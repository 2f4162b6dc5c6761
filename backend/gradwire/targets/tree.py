"""A configuration file as plain data in which every key and value knows where it stands."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

Kind = Literal["deepspeed", "accelerate", "trainer"]
Syntax = Literal["json", "hjson", "yaml"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One value: `data` as the library that reads the file gets it; `start` and `end` are offsets into the text.

    `members` is set for a mapping, `items` for a list. `quoted` says that a scalar stands in quotes.
    """

    data: Any
    start: int
    end: int
    members: dict[str, Member] | None = None
    items: tuple[Node, ...] | None = None
    quoted: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """One key of a mapping with its value."""

    name: str
    start: int
    end: int
    node: Node


@dataclass(frozen=True, kw_only=True, slots=True)
class Repeat:
    """A key that stands twice in one mapping: where the one that loses stands, and where the one that wins."""

    path: str
    lost: Member
    kept: Member


@dataclass(frozen=True, kw_only=True, eq=False)
class Document:
    """A file that could be read. `source` is what messages call it; `strict_error` is why strict JSON refuses it."""

    source: str
    text: str
    kind: Kind
    syntax: Syntax
    root: Node
    repeats: tuple[Repeat, ...] = ()
    strict_error: str | None = None
    starts_with_mark: bool = False

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(index + 1 for index, character in enumerate(self.text) if character == "\n")]

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, both from 1."""
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def member(self, path: str) -> Member | None:
        """The key at a dotted path, or None; a key that holds a dot cannot be asked for."""
        found: Member | None = None
        node = self.root
        for name in path.split("."):
            found = (node.members or {}).get(name)
            if found is None:
                return None
            node = found.node
        return found

    def value(self, path: str, default: Any = None) -> Any:
        """The value at a dotted path, or `default` where the key is absent."""
        found = self.member(path)
        return default if found is None else found.node.data

    def has(self, path: str) -> bool:
        """Whether the key at a dotted path is written."""
        return self.member(path) is not None

    def mapping(self, path: str) -> dict[str, Any]:
        """The mapping at a dotted path; empty where there is none."""
        value = self.value(path) if path else self.root.data
        return value if isinstance(value, dict) else {}


@dataclass(slots=True)
class MappingBuilder:
    """Collects the members of one mapping and remembers the keys that were written twice."""

    path: str
    members: dict[str, Member] = field(default_factory=dict)
    repeats: list[Repeat] = field(default_factory=list)

    def add(self, member: Member) -> None:
        """Take one key; the last of two equal ones wins, as in every reader that does not refuse them."""
        before = self.members.pop(member.name, None)
        if before is not None:
            self.repeats.append(Repeat(path=joined(self.path, member.name), lost=before, kept=member))
        self.members[member.name] = member

    def node(self, start: int, end: int) -> Node:
        """The finished mapping."""
        data = {name: member.node.data for name, member in self.members.items()}
        return Node(data=data, start=start, end=end, members=self.members)


def joined(path: str, name: str) -> str:
    """The dotted path of a member of the mapping at `path`."""
    return f"{path}.{name}" if path else name


def walk(node: Node, path: str = "") -> Iterator[tuple[str, Member]]:
    """Every key below a node with its dotted path, in the order of the file; lists are not entered."""
    for name, member in (node.members or {}).items():
        here = joined(path, name)
        yield here, member
        yield from walk(member.node, here)
