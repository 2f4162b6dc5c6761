"""Turns a command line into arguments, with the modules of the one verb it names and with suggestions for typos."""

from __future__ import annotations

import argparse
import importlib
import os
import re
from collections.abc import Collection, Sequence
from typing import NoReturn

from gradwire.cli.options import VersionAction
from gradwire.cli.output import screen_width, table
from gradwire.cli.suggest import did_you_mean
from gradwire.errors import UsageError

VERBS = {
    "presets": "list the recipes that ship with Gradwire",
    "show": "print a recipe, resolved: every value it ends up with",
    "validate": "check recipes; every problem at once",
    "explain": "say what one key means, its value and where that came from",
    "lower": "write a backend's configuration files and the launch command",
    "launch": "lower a recipe, run it, and measure it",
    "measure": "run your own training command and measure it",
    "compare": "run one recipe on several backends and sizes; table and report",
    "parity": "train one recipe on several backends; say where they first differ",
    "report": "compare runs that were measured already; table and report",
    "advise": "say below which link speed gradient compression pays",
    "efficiency": "scaling efficiency and grade from throughputs, or from a file of them",
    "lint": "say what DeepSpeed and Accelerate will really do with config files",
    "import": "make a recipe of the config files of DeepSpeed and Accelerate",
    "diff": "compare recipes or config files by what the programs end up with",
    "schema": "print the JSON Schema of a document kind",
    "doctor": "check this machine: packages, devices, compilers, leftovers",
    "completion": "print a shell completion script",
}
"""Each verb with its help; its module in gradwire.cli has add_arguments(parser) and run(arguments)."""

# What others call it.
_MEANT = {"run": "launch", "train": "launch", "list": "presets", "check": "validate", "config": "show"}

# With these, what follows `--` is files, as is usual: a file's name may begin with a dash.
_FILE_VERBS = ("validate", "lint", "import")

# Names that are words of Python.
_MODULES = {"import": "import_files"}

_DESCRIPTION = """\
One recipe for distributed training, lowered to Accelerate, DeepSpeed or plain
torch, launched, and measured by one meter."""

_EPILOG = """\
verbs:
{verbs}

examples:
  gradwire presets
  gradwire lower h100-8-overlap --backend accelerate --out out/
  gradwire launch cpu/ddp --backend native --num-gpus 2
  gradwire compare cpu/ddp --backends native,accelerate,deepspeed --num-gpus 1,2

Every verb has --help with examples, and --json: one JSON document on stdout,
{{"error": {{...}}}} when it fails. Commentary goes to stderr.

exit codes:
  0  ok                             3  the backend cannot express the recipe
  1  a run failed, or files differ  4  this machine is not fit for it
  2  usage, or an invalid recipe    5  a threshold was not met"""


class _Parser(argparse.ArgumentParser):
    """Raises instead of exiting, so that --json and the exit codes hold for a mistyped option too."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}\n{self.format_usage()}more: {self.prog} --help")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Return the arguments with `run`, the verb's function, and `words`, the line itself.

    Words after a lone `--` are in `program`, else None, of the verbs that take a script;
    of those that only take files they are files.

    Raises UsageError; ends the process, as argparse does, for --help and --version.
    """
    own, program = _split_program(words)
    verb = next((word for word in own if not word.startswith("-")), None)
    # What `measure` runs is named nowhere.
    _refuse_other_encodings(own if verb == "measure" else words)
    if verb is not None and verb not in VERBS:
        meant = f" (did you mean {_MEANT[verb]}?)" if verb in _MEANT else did_you_mean(verb, VERBS)
        hint = " (gradwire VERB --help says what one does)" if verb == "help" else meant
        raise UsageError(f"there is no verb {verb!r}{hint}; the verbs are {', '.join(VERBS)}")
    parser, subparsers = build_parser([] if verb is None else [verb])
    if verb is not None:
        # Before argparse looks: it would complain of what is missing before what is misspelt.
        _refuse_unknown_options(subparsers[verb], own)
    if verb in _FILE_VERBS and program is not None:
        own, program = [*own, "--", *program], None
    arguments, unknown = parser.parse_known_args(own)
    if verb is None:
        raise UsageError(f"a verb is missing\n\n{parser.format_help()}")
    if unknown:
        takes_script = hasattr(arguments, "program") and any(word.endswith(".py") for word in unknown)
        hint = "; a script of your own stands at the end, after `--`" if takes_script else ""
        subparsers[verb].error(f"unexpected argument: {' '.join(unknown)}{hint}")
    if program is not None and not hasattr(arguments, "program"):
        raise UsageError(f"gradwire {verb} takes no script after `--`; lower, launch and measure do")
    if program is not None:
        arguments.program = program
    arguments.words = list(words)
    return arguments


def build_parser(
    verbs: Collection[str], *, for_completion: bool = False
) -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """Return the parser of the command, and that of each verb in `verbs`: their modules are imported, no others.

    The help has its own table of verbs, and argparse's is hidden, unless it is read `for_completion`.
    """
    parser = _Parser(
        prog="gradwire",
        usage="gradwire VERB ... [--json]",
        description=_DESCRIPTION,
        epilog=_EPILOG.format(verbs=table(list(VERBS.items()))),
        formatter_class=_formatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=VersionAction, help="print the version and exit")
    group = parser.add_subparsers(
        metavar="VERB", dest="verb", parser_class=_Parser, help=None if for_completion else argparse.SUPPRESS
    )
    subparsers: dict[str, argparse.ArgumentParser] = {}
    for verb in verbs:
        module = importlib.import_module(f"gradwire.cli.{_MODULES.get(verb, verb)}")
        subparsers[verb] = subparser = group.add_parser(
            verb,
            prog=f"gradwire {verb}",
            help=VERBS[verb],
            description=module.DESCRIPTION,
            epilog=f"examples:\n{module.EXAMPLES}",
            formatter_class=_formatter,
            allow_abbrev=False,
        )
        module.add_arguments(subparser)
        subparser.set_defaults(run=module.run)
    return parser, subparsers


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, width=screen_width() - 2, max_help_position=26)


def _split_program(words: Sequence[str]) -> tuple[list[str], tuple[str, ...] | None]:
    if "--" not in words:
        return list(words), None
    cut = list(words).index("--")
    program = tuple(words[cut + 1 :])
    if not program:
        raise UsageError("nothing follows `--`; your script and its arguments go there")
    return list(words[:cut]), program


def _refuse_other_encodings(words: Sequence[str]) -> None:
    # Python stands a surrogate in for each byte that it cannot decode; names go into documents, which are UTF-8.
    for word in words:
        if not word.isascii() and any("\udc80" <= letter <= "\udcff" for letter in word):
            shown = os.fsencode(word).decode("utf-8", errors="backslashreplace")
            raise UsageError(
                f"{shown}: is not UTF-8, as the documents are that name it; rename it, or set a UTF-8 locale"
            )


def _refuse_unknown_options(subparser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    known = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", subparser.format_help()))
    used = [word.split("=", 1)[0] for word in words if word.startswith("--")]
    unknown = [f"{name}{did_you_mean(name, sorted(known))}" for name in used if name not in {*known, "--version"}]
    if unknown:
        subparser.error(f"unknown option {', '.join(unknown)}")
