"""Reads JSON and hjson text with places, to the same data as the library that DeepSpeed reads its file with."""

from __future__ import annotations

import json
import re
from typing import Any, Literal

from gradwire.targets.tree import MappingBuilder, Member, Node, Repeat, joined

MAX_DEPTH = 64
"""Deepest nesting; DeepSpeed's deepest key is at 8."""

_SPACE = re.compile(r"(?:[ \t\n\r]+|#[^\n\r]*|//[^\n\r]*|/\*.*?\*/)*", re.DOTALL)
_QUOTED = {quote: re.compile(rf"{quote}((?:[^{quote}\\\x00-\x1f]|\\.)*){quote}") for quote in "\"'"}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
_SIMPLE_ESCAPES = {'"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LITERAL = re.compile(
    r"(?:(?P<word>true|false|null)|(?P<number>-?(?:0|[1-9]\d*)(?P<real>(?:\.\d+)?(?:[eE][-+]?\d+)?)))"
    r"[ \t]*(?=[,}\]#\r\n]|//|/\*|\Z)"
)
_BARE_KEY = re.compile(r"[^\s{}\[\],:]+")
_LINE = re.compile(r"[^\r\n]*")
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_OBJECT_START = re.compile(r"\s*(?:[\"'][^\"']*[\"']|[^\s{}\[\],:]+)\s*:")


class TextError(Exception):
    """The text is not what its format says; `offset` is where it stops making sense."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


def parse_hjson(text: str) -> tuple[Node, list[Repeat], Literal["json", "hjson"], str | None]:
    """Return the root, the repeated keys, the syntax, and why strict JSON refuses the text (None: it does not).

    Numbers are what strict JSON makes of them. Raises TextError.
    """
    try:
        json.loads(text.removeprefix("\ufeff"))
        strict_error = None
    except json.JSONDecodeError as error:
        strict_error = f"{error.msg} at line {error.lineno} column {error.colno}"
    except ValueError:
        raise TextError("a number has more digits than any library reads", 0) from None
    except RecursionError:
        raise TextError(f"nested deeper than {MAX_DEPTH} levels", 0) from None
    parser = _Parser(text)
    root = parser.document()
    return root, parser.repeats, "json" if strict_error is None else "hjson", strict_error


class _Parser:
    """Descends the text once; keeps the repeated keys."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.repeats: list[Repeat] = []

    def document(self) -> Node:
        start = self._skip(1 if self.text.startswith("\ufeff") else 0)
        if start == len(self.text):
            raise TextError("the file is empty", 0)
        if self.text[start] in "{[" or not _OBJECT_START.match(self.text, start):
            node = self._value(start, "", 1)
        else:
            node = self._members(start, start, "", 1, closing=False)
        end = self._skip(node.end)
        if end != len(self.text):
            raise TextError("text goes on after the end of the configuration", end)
        return node

    def _skip(self, offset: int) -> int:
        match = _SPACE.match(self.text, offset)
        end = match.end() if match else offset
        if self.text.startswith("/*", end):
            raise TextError("comment is not closed", end)
        return end

    def _value(self, start: int, path: str, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise TextError(f"nested deeper than {MAX_DEPTH} levels", start)
        character = self.text[start : start + 1]
        if character == "{":
            return self._members(start, start + 1, path, depth, closing=True)
        if character == "[":
            return self._list(start, path, depth)
        if self.text.startswith("'''", start):
            return self._block(start)
        if character and character in "\"'":
            data, end = self._string(start)
            return Node(data=data, start=start, end=end, quoted=True)
        return self._bare(start)

    def _members(self, start: int, offset: int, path: str, depth: int, *, closing: bool) -> Node:
        builder = MappingBuilder(path)
        offset = self._skip(offset)
        while True:
            character = self.text[offset : offset + 1]
            if character == "" and not closing:
                break
            if character == "":
                raise TextError("'{' is not closed", start)
            if character == "}" and closing:
                offset += 1
                break
            name, key_end = self._key(offset)
            colon = self._skip(key_end)
            if self.text[colon : colon + 1] != ":":
                raise TextError(f"':' is missing after the key {name!r}", colon)
            node = self._value(self._skip(colon + 1), joined(path, name), depth + 1)
            builder.add(Member(name=name, start=offset, end=key_end, node=node))
            offset = self._skip(node.end)
            if self.text[offset : offset + 1] == ",":
                offset = self._skip(offset + 1)
        self.repeats.extend(builder.repeats)
        return builder.node(start, offset)

    def _list(self, start: int, path: str, depth: int) -> Node:
        items: list[Node] = []
        offset = self._skip(start + 1)
        while self.text[offset : offset + 1] != "]":
            if offset == len(self.text):
                raise TextError("'[' is not closed", start)
            items.append(self._value(offset, path, depth + 1))
            offset = self._skip(items[-1].end)
            if self.text[offset : offset + 1] == ",":
                offset = self._skip(offset + 1)
        return Node(data=[item.data for item in items], start=start, end=offset + 1, items=tuple(items))

    def _key(self, start: int) -> tuple[str, int]:
        if self.text[start] in "\"'":
            return self._string(start)
        match = _BARE_KEY.match(self.text, start)
        if match is None:
            raise TextError(f"{self.text[start]!r} stands where a key was expected", start)
        return match.group(), match.end()

    def _string(self, start: int) -> tuple[str, int]:
        match = _QUOTED[self.text[start]].match(self.text, start)
        if match is None:
            raise TextError("string is not closed", start)
        inner = match.group(1)
        return (_unescaped(inner, start) if "\\" in inner else inner), match.end()

    def _bare(self, start: int) -> Node:
        match = _LITERAL.match(self.text, start)
        if match is None:
            if self.text[start : start + 1] in ("", *"{}[],:"):
                raise TextError("a value is missing", start)
            line = _LINE.match(self.text, start)
            words = line.group().rstrip() if line else ""
            return Node(data=words, start=start, end=start + len(words))
        word, number = match["word"], match["number"]
        if number is None:
            return Node(data=_WORDS[word], start=start, end=match.end("word"))
        data: Any = float(number) if match["real"] else _whole(number, start)
        return Node(data=data, start=start, end=match.end("number"))

    def _block(self, start: int) -> Node:
        close = self.text.find("'''", start + 3)
        if close < 0:
            raise TextError("string is not closed", start)
        indent = start - (self.text.rfind("\n", 0, start) + 1)
        lines = self.text[start + 3 : close].replace("\r", "").split("\n")
        first = lines[0].lstrip(" \t")
        rest = [line[min(indent, len(line) - len(line.lstrip(" \t"))) :] for line in lines[1:]]
        text = "\n".join(rest if not first and rest else [first, *rest])
        return Node(data=text.removesuffix("\n"), start=start, end=close + 3, quoted=True)


def _whole(digits: str, start: int) -> int:
    if len(digits) > 400:
        raise TextError("the number has more than 400 digits", start)
    return int(digits)


def _unescaped(inner: str, start: int) -> str:
    def character(match: re.Match[str]) -> str:
        if match[1] is not None:
            return chr(int(match[1], 16))
        if match[2] not in _SIMPLE_ESCAPES:
            raise TextError(f"\\{match[2]} is no escape sequence", start)
        return _SIMPLE_ESCAPES[match[2]]

    text = _ESCAPE.sub(character, inner)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
