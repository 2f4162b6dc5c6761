"""Finds the comments of a configuration file and the keys that they belong to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from gradwire.targets.tree import Document, Member, Node

_HASH = r"#[^\n\r]*"
_COMMENT = {
    "yaml": re.compile(_HASH),
    "hjson": re.compile(rf"{_HASH}|//[^\n\r]*|/\*.*?\*/", re.DOTALL),
}
_MARKS = re.compile(r"^(?:#+|//+|/\*+)\s?|\s*\*+/$")


@dataclass(slots=True)
class Remarks:
    """The comments of one key: the lines above it, and what stands behind it; without their marks."""

    above: list[str] = field(default_factory=list)
    behind: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class Comments:
    """The comments of a file: those at its top, and those of each key by the offset at which the key stands."""

    top: tuple[str, ...]
    of: dict[int, Remarks]


def comments_of(document: Document) -> Comments:
    """Return the comments of a document; none for strict JSON, which has none.

    A comment behind a value belongs to its key, one on lines of its own to the key that follows. Lines at the top of
    the file with an empty line behind them belong to the file.
    """
    if document.syntax == "json":
        return Comments(top=(), of={})
    found: dict[int, Remarks] = {}
    top: list[str] = []
    pattern, text = _COMMENT[document.syntax], document.text
    end, last = 0, None
    for member in _in_order(document.root):
        gap = text[end : member.start]
        if last is None:
            cut = _end_of_top(gap)
            top.extend(_split(gap[:cut], pattern, is_first=True)[0])
            gap = gap[cut:]
        above, behind = _split(gap, pattern, is_first=last is None)
        if last is not None and behind:
            found.setdefault(last, Remarks()).behind.extend(behind)
        if above:
            found.setdefault(member.start, Remarks()).above.extend(above)
        last = member.start
        end = member.end if member.node.members is not None else max(member.end, member.node.end)
    _, behind = _split(text[end:], pattern, is_first=False)
    if last is not None and behind:
        found.setdefault(last, Remarks()).behind.extend(behind)
    return Comments(top=tuple(top), of=found)


def _in_order(root: Node) -> Iterator[Member]:
    """The keys in the order of the text; an alias stands elsewhere and is left out."""
    last = -1
    for member in _members(root):
        if member.start > last:
            last = member.start
            yield member


def _members(node: Node) -> Iterator[Member]:
    for member in (node.members or {}).values():
        yield member
        if member.node.start >= member.start:
            yield from _members(member.node)


def _end_of_top(gap: str) -> int:
    """Return where the comments of the file end in the text before its first key: at an empty line or a brace."""
    empty = [match.end() for match in re.finditer(r"\n[ \t\r]*\n", gap)]
    brace = re.search(r"^\s*\{", gap, re.MULTILINE)
    return max([0, brace.end() if brace else 0, *empty[-1:]])


def _split(gap: str, pattern: re.Pattern[str], *, is_first: bool) -> tuple[list[str], list[str]]:
    """Return the comments above the next key, and those behind the last one."""
    above: list[str] = []
    behind: list[str] = []
    first_line = -1 if is_first else gap.find("\n")
    for match in pattern.finditer(gap):
        lines = [_MARKS.sub("", line.strip()).strip() for line in match.group().split("\n")]
        on_first_line = not is_first and (first_line < 0 or match.start() < first_line)
        (behind if on_first_line else above).extend(line for line in lines if line)
    return above, behind
