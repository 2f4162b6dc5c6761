"""Reads YAML 1.2 text from the parser's events: no objects are built, nothing is expanded before it is counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, StringMark, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from gradwire.errors import InvalidRecipe, Violation
from gradwire.recipe.document import Document, Path, Place
from gradwire.recipe.scalars import Scalar, UnusableScalar, resolve_plain, resolve_quoted
from gradwire.recipe.show import show_key, show_value
from gradwire.recipe.yaml_errors import describe_syntax_error

MAX_DEPTH = 32
"""Deepest nesting, aliases followed; a recipe needs 4."""

MAX_NODES = 10_000
"""Most values, each alias counted with all that it stands for: what a billion-laughs file runs into."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Node:
    place: Place
    scalar: Scalar = None
    items: list[_Node] | None = None
    pairs: list[tuple[str, Place, _Node]] | None = None
    size: int = 1
    height: int = 1


def parse_yaml(text: str, *, source: str) -> Document:
    """Return the one mapping in `text`; raises InvalidRecipe where it cannot be told what the mapping is."""
    composer = _Composer(source)
    root = composer.compose(text)
    if root is None:
        _raise(source, None, "is empty; a recipe is a mapping, for example `extends: cpu/ddp`")
    if root.pairs is None:
        _raise(source, root.place, "the top level must be a mapping of keys to values, for example `extends: cpu/ddp`")
    key_places: dict[Path, Place] = {}
    value_places: dict[Path, Place] = {}
    data = _expand(root, (), key_places, value_places)
    return Document(
        source=source,
        data=data,
        key_places=key_places,
        value_places=value_places,
        faults=tuple(composer.faults),
    )


def parse_value(text: str, *, source: str) -> Any:
    """Return the plain data that `text`, a YAML value without a document around it, stands for.

    Raises InvalidRecipe with every fault.
    """
    composer = _Composer(source, with_places=False)
    root = composer.compose(text)
    if composer.faults:
        raise InvalidRecipe(composer.faults)
    return None if root is None else _expand(root, (), {}, {})


def _expand(node: _Node, path: Path, key_places: dict[Path, Place], value_places: dict[Path, Place]) -> Any:
    value_places[path] = node.place
    if node.items is not None:
        return [_expand(item, (*path, i), key_places, value_places) for i, item in enumerate(node.items)]
    if node.pairs is None:
        return node.scalar
    mapping: dict[str, Any] = {}
    for key, place, value in node.pairs:
        key_places[(*path, key)] = place
        mapping[key] = _expand(value, (*path, key), key_places, value_places)
    return mapping


class _Composer:
    """Builds nodes from events, keeping anchors and the faults found on the way.

    `misses_keys`: a mapping has keys besides those that its node has, so what it lacks cannot be told.
    """

    def __init__(self, source: str, *, with_places: bool = True) -> None:
        self.source = source
        self.with_places = with_places
        self.anchors: dict[str, _Node] = {}
        self.open_anchors: set[str] = set()
        self.faults: list[Violation] = []
        self.misses_keys = False

    def compose(self, text: str) -> _Node | None:
        events: Iterator[Any] = YAML(typ="safe", pure=True).parse(text)
        try:
            root = self._document(events)
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self._stop(_place(mark) if mark else None, describe_syntax_error(error))
        except YAMLError as error:
            self._stop(None, f"not valid YAML: {str(error).splitlines()[0]}")
        if self.misses_keys:
            raise InvalidRecipe(self.faults)
        return root

    def _document(self, events: Iterator[Any]) -> _Node | None:
        root: _Node | None = None
        for event in events:
            match event:
                case DocumentStartEvent():
                    if root is not None:
                        self._stop(_place(event.start_mark), "a second document starts here; a recipe is one document")
                    if event.version not in (None, (1, 2)):
                        self._fault(_place(event.start_mark), "recipes are YAML 1.2; remove the %YAML line")
                case NodeEvent():
                    root = self._node(event, events, 1)
        return root

    def _node(self, event: Any, events: Iterator[Any], depth: int, *, absent_at: Place | None = None) -> _Node:
        place = _place(event.start_mark)
        if absent_at and isinstance(event, ScalarEvent) and not event.style and not event.value:
            # A value that is left out has its mark at whatever comes next.
            place = absent_at
        if depth > MAX_DEPTH:
            self._stop(place, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, AliasEvent):
            return self._alias(event.anchor, place, depth)
        if event.tag is not None:
            self._fault(
                place, f"tag {event.tag} is not allowed: a recipe is plain data; quote the value to make it a string"
            )
        if event.anchor is not None:
            self.open_anchors.add(event.anchor)
        match event:
            case MappingStartEvent():
                node = self._mapping(place, events, depth)
            case SequenceStartEvent():
                node = self._sequence(place, events, depth)
            case _:
                node = _Node(place=place, scalar=self._scalar(event))
        if event.anchor is not None:
            self.open_anchors.discard(event.anchor)
            self.anchors[event.anchor] = node
        return node

    def _mapping(self, place: Place, events: Iterator[Any], depth: int) -> _Node:
        pairs: list[tuple[str, Place, _Node]] = []
        first_places: dict[str, Place] = {}
        size = height = 1
        for event in events:
            if isinstance(event, MappingEndEvent):
                break
            key_place = _place(event.start_mark)
            key = self._key(event, events, depth)
            value = self._node(next(events), events, depth + 1, absent_at=key_place)
            size, height = self._grow(size, height, value, key_place)
            if key is None:
                self.misses_keys = True
                continue
            if key in first_places:
                first = first_places[key]
                where = f"line {first.line}, column {first.column}"
                self._fault(key_place, f"key {show_key(key)} is written twice, first at {where}; keep one")
                continue
            first_places[key] = key_place
            pairs.append((key, key_place, value))
        return _Node(place=place, pairs=pairs, size=size, height=height)

    def _sequence(self, place: Place, events: Iterator[Any], depth: int) -> _Node:
        items: list[_Node] = []
        size = height = 1
        for event in events:
            if isinstance(event, SequenceEndEvent):
                break
            items.append(self._node(event, events, depth + 1))
            size, height = self._grow(size, height, items[-1], items[-1].place)
        return _Node(place=place, items=items, size=size, height=height)

    def _grow(self, size: int, height: int, child: _Node, place: Place) -> tuple[int, int]:
        size += child.size
        if size > MAX_NODES:
            self._stop(place, f"more than {MAX_NODES} values, aliases counted; no recipe has so many")
        return size, max(height, child.height + 1)

    def _alias(self, name: str, place: Place, depth: int) -> _Node:
        if name in self.open_anchors:
            self._stop(place, f"alias *{name} stands inside what it stands for")
        if name not in self.anchors:
            self._stop(place, f"alias *{name} has no anchor &{name} before it; quote the value if it is text")
        node = self.anchors[name]
        if depth + node.height - 1 > MAX_DEPTH:
            self._stop(place, f"nested deeper than {MAX_DEPTH} levels")
        return node

    def _key(self, event: Any, events: Iterator[Any], depth: int) -> str | None:
        place = _place(event.start_mark)
        node = self._node(event, events, depth + 1)
        if isinstance(event, ScalarEvent) and not event.style and node.scalar == "<<":
            self._fault(place, "merge keys (<<) are not YAML 1.2; write the keys out, or use `extends`")
            return None
        if isinstance(node.scalar, str):
            return node.scalar
        is_scalar = node.items is None and node.pairs is None
        shown = f"{show_value(node.scalar)}; quote it" if is_scalar else "a list or mapping"
        self._fault(place, f"a key must be text, not {shown}")
        return None

    def _scalar(self, event: ScalarEvent) -> Scalar:
        place = _place(event.start_mark)
        try:
            return resolve_quoted(event.value) if event.style else resolve_plain(event.value)
        except UnusableScalar as error:
            self._fault(place, str(error))
            return None

    def _fault(self, place: Place, message: str) -> None:
        self.faults.append(self._violation(place, message))

    def _stop(self, place: Place | None, message: str) -> NoReturn:
        raise InvalidRecipe([*self.faults, self._violation(place, message)])

    def _violation(self, place: Place | None, message: str) -> Violation:
        return _violation(self.source, place if self.with_places else None, message)


def _place(mark: StringMark) -> Place:
    return Place(line=mark.line + 1, column=mark.column + 1)


def _violation(source: str, place: Place | None, message: str) -> Violation:
    return Violation(
        source=source,
        line=place.line if place else None,
        column=place.column if place else None,
        path="",
        message=message,
    )


def _raise(source: str, place: Place | None, message: str) -> NoReturn:
    raise InvalidRecipe([_violation(source, place, message)])
