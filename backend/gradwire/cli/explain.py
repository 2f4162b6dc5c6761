"""`gradwire explain`: what one key means, its value, where that came from, and what each backend makes of it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from gradwire.cli.options import BACKEND_NAMES, add_changes, add_json, add_recipe
from gradwire.cli.output import plain, say, say_json, shown, table, wrapped
from gradwire.cli.parity_evidence import parity_check, parity_text
from gradwire.cli.steps import load, lower_loaded
from gradwire.errors import GradwireError, UsageError

if TYPE_CHECKING:
    from gradwire.recipe import LoadedRecipe

# The keys whose effect shows in a step's loss, gradient norm or learning rate.
_TRAINED = ("model.", "data.", "training.", "communication.", "parallelism.")

DESCRIPTION = """\
Say what one key of a recipe means: its value and where that came from, what is
allowed, the default, and what each backend makes of it. KEY may be a section;
without it, the sections."""
EXAMPLES = """\
  gradwire explain cpu/ddp
  gradwire explain cpu/ddp training.gradient_clip
  gradwire explain mine.yaml communication.compression
  gradwire explain mine.yaml training.num_gpus --num-gpus 64"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """RECIPE, KEY and changes."""
    add_recipe(parser)
    parser.add_argument(
        "key", metavar="KEY", nargs="?", help="dotted path, such as training.gradient_clip or communication"
    )
    add_changes(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print a key's, or a section's, explanation; UsageError with a suggestion for an unknown key."""
    loaded = load(arguments.recipe, arguments)
    if arguments.key is None:
        sections = _sections()
        if arguments.json:
            say_json({"path": None, "kind": "recipe", "sections": sections})
        else:
            _print_sections(arguments.recipe, sections)
        return 0
    path = tuple(arguments.key.split("."))
    schema = _schema_at(path)
    if _is_section(path):
        document = _section(loaded, arguments.key, schema)
        say_json(document) if arguments.json else _print_section(document)
    else:
        document = _key(loaded, arguments, schema)
        say_json(document) if arguments.json else _print_key(document)
    return 0


def _schema_at(path: tuple[str, ...]) -> dict[str, Any]:
    from gradwire.recipe.schema_index import children
    from gradwire.recipe.suggest import hint_for_key

    schema: dict[str, Any] = {}
    for depth in range(len(path)):
        known = children(path[:depth])
        if path[depth] not in known:
            raise UsageError(f"a recipe has no key {'.'.join(path)}: {hint_for_key(path[: depth + 1])}")
        schema = known[path[depth]]
    return schema


def _sections() -> dict[str, str]:
    """Return what each section at the top of a recipe is for."""
    from gradwire.recipe.schema_index import children

    return {name: schema["description"] for name, schema in children(()).items()}


def _is_section(path: tuple[str, ...]) -> bool:
    from gradwire.recipe.schema_index import children

    return bool(children(path))


def _section(loaded: LoadedRecipe, key: str, schema: dict[str, Any]) -> dict[str, Any]:
    keys = [
        {"path": path, "value": _value(loaded, path), "origin": plain(origin)}
        for path, origin in loaded.origins.items()
        if path == key or path.startswith(f"{key}.")
    ]
    return {"path": key, "kind": "section", "description": schema["description"], "keys": keys}


def _key(loaded: LoadedRecipe, arguments: argparse.Namespace, schema: dict[str, Any]) -> dict[str, Any]:
    key = arguments.key
    return {
        "path": key,
        "kind": "key",
        "value": _value(loaded, key),
        "origin": plain(loaded.origins[key]) if key in loaded.origins else None,
        "description": schema["description"],
        "allowed": _allowed(schema),
        "default": schema.get("default"),
        "required": "default" not in schema,
        "examples": schema.get("examples", []),
        "backends": {backend: _on_backend(loaded, arguments, backend, key) for backend in BACKEND_NAMES},
    }


def _value(loaded: LoadedRecipe, key: str) -> Any:
    value = plain(loaded.recipe)
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _allowed(schema: dict[str, Any]) -> str:
    """Return type and limits in words."""
    shapes = schema.get("anyOf", [])
    if len(shapes) > 1 and not any("$ref" in shape for shape in shapes):
        return " or ".join(_allowed(shape) for shape in shapes)
    if "enum" in schema:
        return ", ".join(shown(choice) for choice in schema["enum"])
    kinds = schema.get("type", "object")
    words = " or ".join([kinds] if isinstance(kinds, str) else kinds)
    limits = [
        f"{text} {shown(schema[name])}"
        for name, text in (
            ("minimum", "at least"),
            ("exclusiveMinimum", "above"),
            ("maximum", "at most"),
            ("exclusiveMaximum", "below"),
            ("multipleOf", "a multiple of"),
            ("minItems", "entries at least"),
            ("maxItems", "entries at most"),
            ("maxLength", "characters at most"),
        )
        if name in schema
    ]
    return ", ".join([words, *limits])


def _on_backend(loaded: LoadedRecipe, arguments: argparse.Namespace, backend: str, key: str) -> dict[str, Any]:
    from pathlib import PurePath

    try:
        plan, artifact = lower_loaded(loaded, arguments, backend=backend, folder=PurePath("out"), allow_lossy=True)
    except GradwireError as error:
        return {"outcome": "not lowered", "carrier": None, "note": str(error), "parity": None}
    # A free-form mapping, such as backends.deepspeed, is accounted for as a whole.
    field = next((field for field in artifact.report.fields if field.path == key), None)
    if field is None:
        return {"outcome": "unused", "carrier": None, "note": None, "parity": None}
    # What is not carried there, a comparison of runs says nothing about.
    carried = field.outcome in ("exact", "emulated") and field.path.startswith(_TRAINED)
    check = parity_check(loaded, plan, arguments) if carried else None
    return {"outcome": field.outcome, "carrier": field.carrier, "note": field.note, "parity": plain(check)}


def _from(origin: dict[str, Any] | None) -> str:
    if origin is None:
        return "nothing: the section is absent"
    if origin["layer"] == "default":
        return "schema default"
    return origin["source"] if origin["line"] is None else f"{origin['source']}:{origin['line']}:{origin['column']}"


def _print_key(document: dict[str, Any]) -> None:
    say(f"{document['path']} = {shown(document['value'])}")
    rows = [
        ("from", _from(document["origin"])),
        ("meaning", document["description"]),
        ("allowed", document["allowed"]),
        ("default", "none: it must be given" if document["required"] else shown(document["default"])),
    ]
    for backend, outcome in document["backends"].items():
        carried = f" by {outcome['carrier']}" if outcome["carrier"] else ""
        rows.append((backend, f"{outcome['outcome']}{carried}{': ' + outcome['note'] if outcome['note'] else ''}"))
    rows += _compared(document["backends"])
    say(table(rows))


def _compared(backends: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what runs say of the backends; where they say nothing, once how they can be made to."""
    import msgspec

    from gradwire.documents.lowering_schema import ParityCheck

    checks = {
        backend: msgspec.convert(outcome["parity"], ParityCheck)
        for backend, outcome in backends.items()
        if outcome["parity"] is not None
    }
    told = [f"{backend} {parity_text(check)}" for backend, check in checks.items() if check.evidence is not None]
    return [("compared", line) for line in told or [parity_text(check) for check in list(checks.values())[:1]]]


def _print_sections(reference: str, sections: dict[str, str]) -> None:
    say(table(list(sections.items()), indent=0))
    say()
    say(f"`gradwire explain {reference} training` lists a section; with training.optimizer it says all of one key.")


def _print_section(document: dict[str, Any]) -> None:
    say(document["path"])
    say(wrapped(document["description"], indent=2))
    say()
    # Within the section, the section's name is noise.
    inside = f"{document['path']}."
    lines = [(f"{key['path'].removeprefix(inside)} = {shown(key['value'])}", key["origin"]) for key in document["keys"]]
    width = max(len(line) for line, _ in lines)
    for line, origin in lines:
        say(f"  {line:<{width}}  # {_from(origin)}")
