"""`gradwire show`: print a recipe, resolved."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gradwire.cli.options import add_changes, add_json, add_recipe
from gradwire.cli.output import plain, say_json
from gradwire.cli.steps import load

if TYPE_CHECKING:
    from ruamel.yaml.representer import RoundTripRepresenter

    from gradwire.recipe import Origin

DESCRIPTION = """\
Print a recipe with every value it ends up with, as YAML that is a recipe again.
A comment names where a value comes from; without one it is the schema default."""
EXAMPLES = """\
  gradwire show h100-8-powersgd
  gradwire show mine.yaml --set training.precision=bf16-mixed
  gradwire show cpu/ddp --json | jq .training"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """RECIPE and changes to it."""
    add_recipe(parser)
    add_changes(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the resolved recipe."""
    loaded = load(arguments.recipe, arguments)
    document = plain(loaded.recipe)
    # Resolved: what it extended is in it.
    del document["extends"]
    if arguments.json:
        say_json(document)
    else:
        sys.stdout.write(_yaml(document, loaded.origins))
    return 0


def _yaml(document: Mapping[str, Any], origins: Mapping[str, Origin]) -> str:
    from ruamel.yaml import YAML

    writer = YAML()
    writer.width = 4096
    writer.representer.add_representer(type(None), _write_null)
    written = io.StringIO()
    writer.dump(_commented(document, origins, ""), written)
    return written.getvalue()


def _write_null(representer: RoundTripRepresenter, _value: None) -> Any:
    # ruamel leaves the value out, which reads like a forgotten one.
    return representer.represent_scalar("tag:yaml.org,2002:null", "null")


def _commented(section: Mapping[str, Any], origins: Mapping[str, Origin], prefix: str) -> Any:
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    result = CommentedMap()
    for key, value in section.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            result[key] = _commented(value, origins, f"{path}.")
            continue
        if isinstance(value, list):
            value = CommentedSeq(value)
            value.fa.set_flow_style()
        result[key] = value
        origin = origins.get(path)
        if origin is not None and origin.layer != "default":
            place = origin.source if origin.line is None else f"{origin.source}:{origin.line}"
            result.yaml_add_eol_comment(place, key, column=0)
    return result
