"""`gradwire validate`: check recipes, every problem of every file."""

from __future__ import annotations

import argparse

from gradwire.cli.options import add_changes, add_json, add_recipe
from gradwire.cli.output import error_document, note, say, say_json
from gradwire.cli.steps import load
from gradwire.errors import InvalidRecipe, UsageError

DESCRIPTION = """\
Check recipes against the schema and the rules that need two fields; says every
problem of every file as FILE:LINE:COLUMN KEY: what is wrong, what is allowed."""
EXAMPLES = """\
  gradwire validate mine.yaml
  gradwire validate recipes/*.yaml --json
  gradwire validate mine.yaml --num-gpus 64      # would it still hold at 64?"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """RECIPE..., and the changes to check them with."""
    add_recipe(parser, many=True)
    add_changes(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Check every recipe; return 0, or 2 when any is invalid or cannot be read."""
    results = []
    for reference in arguments.recipes:
        try:
            load(reference, arguments)
        except UsageError as error:
            results.append({"recipe": reference, "valid": False, "error": error_document(error)})
            if not arguments.json:
                note(str(error) if isinstance(error, InvalidRecipe) else f"gradwire: {error}")
        else:
            results.append({"recipe": reference, "valid": True, "error": None})
            if not arguments.json:
                say(f"{reference}: valid")
    invalid = sum(not result["valid"] for result in results)
    if arguments.json:
        say_json({"valid": not invalid, "recipes": results})
    elif invalid and len(results) > 1:
        note(f"{invalid} of {len(results)} recipes invalid")
    return UsageError.exit_code if invalid else 0
