"""`gradwire presets`: list the recipes that ship."""

from __future__ import annotations

import argparse
import sys

from gradwire.cli.options import add_json
from gradwire.cli.output import note, say, say_json, table
from gradwire.presets import preset_summaries

DESCRIPTION = """\
List the recipes that ship with Gradwire; their names stand wherever a RECIPE is
asked for."""
EXAMPLES = """\
  gradwire presets
  gradwire show h100-8-overlap > mine.yaml     # a start for your own"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--json only."""
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print name and summary of every preset."""
    summaries = preset_summaries()
    if arguments.json:
        say_json([{"name": name, "summary": summary} for name, summary in summaries])
        return 0
    if sys.stdout.isatty():
        say(table(summaries, indent=0))
    else:
        # One line each, for grep and cut.
        width = max(len(name) for name, _ in summaries)
        say("\n".join(f"{name:<{width}}  {summary}".rstrip() for name, summary in summaries))
    note("\n`gradwire show NAME` prints one; `gradwire explain NAME KEY` says what a key does.")
    return 0
