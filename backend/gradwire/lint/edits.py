"""Safe changes to a file's text: rename a key, replace a value, take a key out, with every comment left alone."""

from __future__ import annotations

import json
import re

from gradwire.lint.finding import Edit
from gradwire.targets.tree import Document, Member

_BLANK = re.compile(r"[ \t]*(?:\r?\n[ \t]*)*")


def rename(document: Document, member: Member, name: str) -> tuple[Edit, ...]:
    """The key under another name, in the quotes that it has."""
    written = document.text[member.start : member.end]
    quote = written[0] if written[:1] in ("'", '"') else ""
    return (Edit(start=member.start, end=member.end, text=f"{quote}{name}{quote}"),)


def replace_value(member: Member, text: str) -> tuple[Edit, ...]:
    """The value of a key as other text."""
    return (Edit(start=member.node.start, end=member.node.end, text=text),)


def replace_member(document: Document, member: Member, name: str, text: str) -> tuple[Edit, ...]:
    """The key under another name with another value."""
    return (*rename(document, member, name), *replace_value(member, text))


def quoted(document: Document, text: str) -> str:
    """Text in the quotes that fit the file's syntax."""
    return json.dumps(text) if document.syntax != "yaml" else "'" + text.replace("'", "''") + "'"


def remove_member(document: Document, member: Member) -> tuple[Edit, ...]:
    """The key taken out with its comma; nothing where a comment stands in the way or the file is YAML."""
    if document.syntax == "yaml":
        return ()
    text = document.text
    after = _after_blank(text, member.node.end)
    if text[after : after + 1] == ",":
        following = _after_blank(text, after + 1)
        return (Edit(start=member.start, end=following, text=""),)
    before = member.start
    while before > 0 and text[before - 1] in " \t\r\n":
        before -= 1
    if text[before - 1 : before] == "," and text[after : after + 1] == "}":
        return (Edit(start=before - 1, end=member.node.end, text=""),)
    if text[before - 1 : before] == "{" and text[after : after + 1] == "}":
        return (Edit(start=before, end=after, text=""),)
    return ()


def _after_blank(text: str, offset: int) -> int:
    match = _BLANK.match(text, offset)
    return match.end() if match else offset
