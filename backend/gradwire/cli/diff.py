"""`gradwire diff`: where two recipes or configurations differ in what they end up with."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from gradwire.cli.import_files import add_facts, facts_of
from gradwire.cli.options import add_json
from gradwire.cli.output import note, say, say_json, shown, wrapped

if TYPE_CHECKING:
    from gradwire.differences.difference import Difference, Value
    from gradwire.differences.sides import Side
    from gradwire.lint.finding import Finding

DESCRIPTION = """\
Compare two recipes, two configuration files of DeepSpeed or Accelerate, or a
recipe and the file that someone edited by hand, by what the programs end up
with after every default: each key that differs, both values, and what each
rests on. A folder that `gradwire lower` wrote is compared by its files. Says
on stderr where two files of one job disagree with each other. Loads no torch.

Ends with 0 where they are equal, with 1 where they differ, as diff does, and
with 2 where one of them cannot be read."""
EXAMPLES = """\
  gradwire diff zero2 zero3
  gradwire diff mine.yaml out/deepspeed.json
  gradwire diff old/ds_config.json new/ds_config.json --num-processes 8
  gradwire diff mine.yaml out/ --json"""

_EQUAL, _DIFFERENT = 0, 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A, B and the facts of the launch."""
    for name in ("a", "b"):
        parser.add_argument(
            name, metavar=name.upper(), help="a preset, a recipe's file, a configuration file, or a lowered folder"
        )
    add_facts(parser, with_kind=False)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare; return 0 where nothing differs, else 1."""
    from gradwire.differences.find import differences
    from gradwire.differences.sides import read_side

    facts = facts_of(arguments)
    a, b = (
        read_side(name, facts=facts, trainer_arguments=arguments.trainer_arguments)
        for name in (arguments.a, arguments.b)
    )
    found = differences(a, b)
    between = [finding for side in (a, b) for finding in _disagreements(side)]
    if arguments.json:
        say_json(_document(a, b, found, between))
    else:
        if found:
            say(f"a: {a.name}\nb: {b.name}")
        for difference in found:
            _say(difference)
    for finding in between:
        note(f"two sources disagree: {finding.file}:{finding.line} {finding.message}: {finding.effect}")
    if not arguments.json:
        count = len(found)
        note("equal" if not found else f"{count} difference{'' if count == 1 else 's'} between {a.name} and {b.name}")
    return _DIFFERENT if found else _EQUAL


def _disagreements(side: Side) -> tuple[Finding, ...]:
    if side.job is None:
        return ()
    from gradwire.differences.sources import disagreements

    return disagreements(side.job)


def _say(difference: Difference) -> None:
    about = "" if difference.about == "recipe" else f" ({difference.about})"
    say(f"{difference.path}{about}")
    for name, value in (("a", difference.a), ("b", difference.b)):
        say(wrapped(f"{shown(value.value)}  {_origin(value)}", indent=8, first=f"  {name}: "))


def _origin(value: Value) -> str:
    if value.file is None:
        return f"({value.origin})"
    place = value.file if value.line is None else f"{value.file}:{value.line}"
    return f"({place})" if value.origin in ("written", "file", "preset") else f"({place}; {value.origin})"


def _document(a: Side, b: Side, found: list[Difference], between: list[Finding]) -> dict[str, Any]:
    from gradwire.cli.output import plain

    return {
        "a": a.name,
        "b": b.name,
        "equal": not found,
        "differences": [plain(difference) for difference in found],
        "disagreements": [finding.as_json() for finding in between],
    }
