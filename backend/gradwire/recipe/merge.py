"""Step two, the last part: layers of a recipe become one document, and every value keeps its origin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gradwire.errors import Violation
from gradwire.recipe.document import Document, Path, Place

LayerName = Literal["command line", "file", "preset", "default"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Where a value came from; `line` and `column` count from 1, None where the source has no lines."""

    source: str
    line: int | None
    column: int | None
    layer: LayerName


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One document that takes part in a recipe."""

    name: LayerName
    document: Document


@dataclass(frozen=True, kw_only=True, slots=True)
class Merged:
    """The layers as one document; `keys` and `values` lead from a path to the origin of its key and its value.

    `faults` are those of all the documents.
    """

    data: dict[str, Any]
    keys: Mapping[Path, Origin]
    values: Mapping[Path, Origin]
    faults: tuple[Violation, ...] = ()


# They describe the file they stand in, so nothing inherits them.
_OWN_KEYS = ("extends", "summary")


def merge(layers: Sequence[Layer]) -> Merged:
    """Return the layers merged, the first one lowest: mappings merge key by key, everything else is replaced whole."""
    keys: dict[Path, Origin] = {}
    values: dict[Path, Origin] = {}
    data: dict[str, Any] = {}
    for layer in layers:
        if layer.name != "command line":
            for own in _OWN_KEYS:
                data.pop(own, None)
                _forget((own,), keys, values)
        data = _over(data, layer.document.data, (), layer, keys, values)
    faults = tuple(fault for layer in layers for fault in layer.document.faults)
    return Merged(data=data, keys=keys, values=values, faults=faults)


def _over(
    below: Any, above: Any, path: Path, layer: Layer, keys: dict[Path, Origin], values: dict[Path, Origin]
) -> Any:
    """Return `above` laid over `below`, both at `path`, noting the origins of what `above` gives."""
    both_are_mappings = isinstance(below, dict) and isinstance(above, dict)
    if not both_are_mappings:
        _forget(path, keys, values)
    values[path] = _origin(layer, layer.document.value_places.get(path))
    if isinstance(above, list):
        return [_over(None, item, (*path, index), layer, keys, values) for index, item in enumerate(above)]
    if not isinstance(above, dict):
        return above
    result = dict(below) if both_are_mappings else {}
    for key, value in above.items():
        inner = (*path, key)
        result[key] = _over(result.get(key), value, inner, layer, keys, values)
        keys[inner] = _origin(layer, layer.document.key_places.get(inner))
    return result


def _forget(path: Path, keys: dict[Path, Origin], values: dict[Path, Origin]) -> None:
    if path not in values:
        return
    for origins in (keys, values):
        for stale in [known for known in origins if known[: len(path)] == path]:
            del origins[stale]


def _origin(layer: Layer, place: Place | None) -> Origin:
    return Origin(
        source=layer.document.source,
        line=place.line if place else None,
        column=place.column if place else None,
        layer=layer.name,
    )
