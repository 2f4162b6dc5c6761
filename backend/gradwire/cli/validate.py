"""`gradwire validate`: check recipes, every problem of every file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gradwire.cli.options import BACKEND_NAMES, add_changes, add_json, add_recipe
from gradwire.cli.output import error_document, note, say, say_json
from gradwire.cli.steps import load, lower_loaded
from gradwire.errors import CannotLower, InvalidRecipe, UsageError, Violation

if TYPE_CHECKING:
    from gradwire.recipe import LoadedRecipe

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
            _check_own_keys(load(reference, arguments), arguments)
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


def _check_own_keys(loaded: LoadedRecipe, arguments: argparse.Namespace) -> None:
    """Raise InvalidRecipe where `backends.*` holds what that backend does not know or the recipe itself decides.

    Whether a backend can express the rest is `lower`'s question.
    """
    if not (loaded.recipe.backends.accelerate or loaded.recipe.backends.deepspeed):
        return
    from pathlib import PurePath

    violations = {}
    for backend in BACKEND_NAMES:
        try:
            lower_loaded(loaded, arguments, backend=backend, folder=PurePath("out"))
        except CannotLower as error:
            for field in error.refused:
                if field.path.startswith("backends."):
                    # The complaint begins with the key; the section as a whole has no place of its own.
                    key = f"{field.path}.{field.limit.split(':', 1)[0]}"
                    origin = next((loaded.origins[path] for path in loaded.origins if path.startswith(key)), None)
                    violations[field.path, field.limit] = Violation(
                        source=origin.source if origin else loaded.name,
                        line=origin.line if origin else None,
                        column=origin.column if origin else None,
                        path=field.path,
                        message=f"{field.limit}; nearest: {field.nearest}",
                    )
    if violations:
        raise InvalidRecipe(list(violations.values()))
