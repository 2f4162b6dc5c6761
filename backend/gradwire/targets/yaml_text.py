"""Reads YAML text with places, to the same data as PyYAML's safe loader, which Accelerate reads its file with.

That is YAML 1.1: `no` is false and `1e-4` is text. The recipe's own reader is YAML 1.2 and would hide both.
"""

from __future__ import annotations

from typing import Any

import yaml

from gradwire.targets.hjson_text import MAX_DEPTH, TextError
from gradwire.targets.tree import MappingBuilder, Member, Node, Repeat, joined

MAX_NODES = 20_000
"""Most values, an alias counted with all that it stands for: what a billion-laughs file runs into."""

_PLAIN_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(text: str) -> tuple[Node, list[Repeat]]:
    """Return the root and the repeated keys of the one document in `text`; raises TextError."""
    try:
        _check_depth(text)
        loader = _Loader(text)
        try:
            composed = loader.get_single_node()
            if composed is None:
                raise TextError("the file is empty", 0)
            builder = _Builder(loader)
            return builder.node(composed, "", 1), builder.repeats
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        offset = _offset(text, mark) if mark else 0
        raise TextError(_described(error, text, offset), offset) from None
    except yaml.YAMLError as error:
        raise TextError(f"not valid YAML: {' '.join(str(error).split())}", 0) from None


def _check_depth(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH and event.start_mark is not None:
                raise TextError(f"nested deeper than {MAX_DEPTH} levels", _offset(text, event.start_mark))
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _offset(text: str, mark: Any) -> int:
    start = 0
    for _ in range(mark.line):
        start = text.find("\n", start) + 1
    return min(start + int(mark.column), len(text))


def _described(error: yaml.MarkedYAMLError, text: str, offset: int) -> str:
    if text[offset : offset + 1] == "\t" or "'\\t'" in str(error.problem):
        return "a tab stands where YAML wants spaces"
    if "nesting depth" in str(error.problem):
        return f"nested deeper than {MAX_DEPTH} levels"
    parts = [error.context, error.problem]
    return "not valid YAML: " + ", ".join(part for part in parts if part)


class _Builder:
    """Turns PyYAML's nodes into ours, counting them."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.repeats: list[Repeat] = []
        self.count = 0
        self.open: set[int] = set()

    def node(self, composed: yaml.Node, path: str, depth: int) -> Node:
        start, end = composed.start_mark.index, composed.end_mark.index
        self.count += 1
        if self.count > MAX_NODES:
            raise TextError(f"more than {MAX_NODES} values, aliases counted", start)
        if depth > MAX_DEPTH or id(composed) in self.open:
            raise TextError("an alias stands inside what it stands for", start)
        if isinstance(composed, yaml.ScalarNode):
            return Node(data=self._scalar(composed, start), start=start, end=end, quoted=composed.style in ("'", '"'))
        if composed.tag not in _PLAIN_TAGS:
            raise TextError(f"not valid YAML: no plain data ({composed.tag})", start)
        self.open.add(id(composed))
        if isinstance(composed, yaml.MappingNode):
            built = self._mapping(composed, path, depth)
        else:
            items = tuple(self.node(item, path, depth + 1) for item in composed.value)
            built = Node(data=[item.data for item in items], start=start, end=end, items=items)
        self.open.discard(id(composed))
        return built

    def _mapping(self, composed: yaml.MappingNode, path: str, depth: int) -> Node:
        self.loader.flatten_mapping(composed)
        builder = MappingBuilder(path)
        for key, value in composed.value:
            name = self._scalar(key, key.start_mark.index) if isinstance(key, yaml.ScalarNode) else None
            if not isinstance(name, str):
                name = str(key.value)
            node = self.node(value, joined(path, name), depth + 1)
            builder.add(Member(name=name, start=key.start_mark.index, end=key.end_mark.index, node=node))
        self.repeats.extend(builder.repeats)
        return builder.node(composed.start_mark.index, composed.end_mark.index)

    def _scalar(self, composed: yaml.ScalarNode, start: int) -> Any:
        try:
            return self.loader.construct_object(composed)
        except ValueError as error:
            raise TextError(f"not valid YAML: {error}", start) from None
