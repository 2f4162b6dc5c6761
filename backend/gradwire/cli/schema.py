"""`gradwire schema`: print the JSON Schema of a document kind."""

from __future__ import annotations

import argparse
import json

from gradwire.cli.options import add_json
from gradwire.cli.output import say, say_json
from gradwire.cli.suggest import did_you_mean
from gradwire.errors import UsageError
from gradwire.resources import schema_kinds, schema_text

DESCRIPTION = "Print the JSON Schema (2020-12) of a document kind; without a kind, list them."
EXAMPLES = """\
  gradwire schema recipe
  gradwire schema measurement > measurement.schema.json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """KIND."""
    parser.add_argument("kind", metavar="KIND", nargs="?", help=f"one of: {', '.join(schema_kinds())}")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print one schema, which is JSON with and without --json; without a kind, the kinds."""
    kinds = schema_kinds()
    if arguments.kind is None:
        if arguments.json:
            say_json(kinds)
        else:
            say("\n".join(kinds))
        return 0
    if arguments.kind not in kinds:
        suggestion = did_you_mean(arguments.kind, kinds)
        raise UsageError(f"there is no document kind {arguments.kind!r}{suggestion}; the kinds are {', '.join(kinds)}")
    text = schema_text(arguments.kind)
    if arguments.json:
        say_json(json.loads(text))
    else:
        say(text.rstrip("\n"))
    return 0
