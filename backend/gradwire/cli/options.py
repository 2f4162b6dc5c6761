"""Option groups that several verbs share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradwire.cli.suggest import did_you_mean
from gradwire.errors import UsageError

_LARGEST_INTEGER = 10**9
# The same as plan.BACKENDS, which a light verb need not import.
BACKEND_NAMES = ("native", "accelerate", "deepspeed", "trainer")

# Underscores are no host name's by the standard, and yet container networks give them.
_ADDRESS = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*\]):(?P<port>[0-9]{1,5})"
)

_NODE_RANK = re.compile("[0-9]{1,9}")


class VersionAction(argparse.Action):
    """Prints the version; the package's metadata is read only when asked."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_rest: object) -> None:
        from importlib.metadata import version

        print(f"gradwire {version('gradwire')}")
        parser.exit()


def add_several_runs(parser: argparse.ArgumentParser) -> None:
    """--timeout and --allow-lossy of the verbs that run a recipe on several backends."""
    parser.add_argument("--timeout", type=positive_number, metavar="S", default=3600.0, help="seconds per run (3600)")
    parser.add_argument(
        "--allow-lossy", action="store_true", help="run a backend with the nearest values where it cannot express them"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """--json."""
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")


def add_recipe(parser: argparse.ArgumentParser, *, many: bool = False, optional: bool = False) -> None:
    """The positional RECIPE."""
    action = parser.add_argument(
        "recipes" if many else "recipe",
        metavar="RECIPE",
        type=recipe_reference,
        nargs="+" if many else "?" if optional else None,
        help="a preset's name (see `gradwire presets`) or a YAML, JSON or TOML file",
    )
    # Read by shtab when it writes a completion script.
    vars(action)["complete"] = RECIPE_COMPLETION


def add_changes(parser: argparse.ArgumentParser, *, sizes: bool = True) -> None:
    """--set, --num-gpus, --device: what overrides the recipe."""
    group = parser.add_argument_group("changes to the recipe (they win over the file)")
    group.add_argument(
        "--set",
        dest="sets",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="override one key, such as training.max_steps=20; repeatable",
    )
    if sizes:
        group.add_argument(
            "--num-gpus", type=positive_integer, metavar="N", help="processes in all, one per GPU (or per CPU worker)"
        )
    group.add_argument(
        "--device",
        choices=("cuda", "cpu"),
        help="kind of device; without it the recipe's, else cuda where this machine has one, else cpu",
    )


def add_backend(parser: argparse.ArgumentParser) -> None:
    """--backend and --allow-lossy."""
    parser.add_argument(
        "--backend", required=True, type=backend_name, choices=BACKEND_NAMES, metavar="B", help=", ".join(BACKEND_NAMES)
    )
    parser.add_argument(
        "--allow-lossy",
        action="store_true",
        help="go on where the backend cannot express a field; lowering.json lists what was lost",
    )


def add_nodes(parser: argparse.ArgumentParser) -> None:
    """--num-nodes, --node-rank, --rdzv."""
    group = parser.add_argument_group("several machines (run the same command on each, with its own --node-rank)")
    group.add_argument("--num-nodes", type=positive_integer, metavar="N", default=1, help="machines in the job (1)")
    group.add_argument(
        "--node-rank", type=node_rank, metavar="R", help="this machine, from 0 (under Slurm its SLURM_NODEID, else 0)"
    )
    group.add_argument("--rdzv", type=address, metavar="HOST:PORT", help="where all processes meet: a port of node 0")


def check_nodes(arguments: argparse.Namespace, *, scheduler_rank: str | None = None) -> None:
    """Raise UsageError where the three options of add_nodes contradict each other.

    Without --node-rank a job of several machines takes `scheduler_rank`, where a scheduler says one, else 0.
    """
    if arguments.node_rank is None:
        is_said = scheduler_rank is not None and _NODE_RANK.fullmatch(scheduler_rank) and arguments.num_nodes > 1
        arguments.node_rank = int(scheduler_rank or 0) if is_said else 0
    if arguments.node_rank >= arguments.num_nodes:
        raise UsageError(
            f"--node-rank {arguments.node_rank} with --num-nodes {arguments.num_nodes}: "
            f"ranks go from 0 to {arguments.num_nodes - 1}"
        )
    if arguments.num_nodes > 1 and arguments.rdzv is None:
        raise UsageError(f"--num-nodes {arguments.num_nodes} needs --rdzv HOST:PORT, a free port of node 0")


def positive_integer(text: str) -> int:
    """Return `text` as an integer of at least 1."""
    if not (text.isascii() and text.isdigit()) or not text.strip("0"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return _limited(text)


def positive_number(text: str) -> float:
    """Return `text` as a finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def share(text: str) -> float:
    """Return `text`, 0.85 or 85%, as a fraction from 0 to 2."""
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 2:
        raise argparse.ArgumentTypeError(f"{text!r} is not a fraction such as 0.85, or 85%")
    return number


def node_rank(text: str) -> int:
    """Return `text` as an integer of at least 0."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return _limited(text)


def _limited(digits: str) -> int:
    # Python itself refuses to read more than 4300 digits.
    digits = digits.lstrip("0") or "0"
    if len(digits) > 10 or int(digits) > _LARGEST_INTEGER:
        shown = digits if len(digits) <= 20 else f"{digits[:20]}..."
        raise argparse.ArgumentTypeError(f"{shown!r} is above the limit, {_LARGEST_INTEGER}")
    return int(digits)


def backend_name(text: str) -> str:
    """Return `text`, a backend's name."""
    if text not in BACKEND_NAMES:
        raise argparse.ArgumentTypeError(
            f"there is no backend {text!r}{did_you_mean(text, BACKEND_NAMES)}; they are {', '.join(BACKEND_NAMES)}"
        )
    return text


def backend_list(text: str) -> list[str]:
    """Return `text`, names of backends with commas between them, none twice."""
    backends = [backend_name(word) for word in comma_list(text)]
    refuse_twins(backends, text)
    return backends


def comma_list(text: str) -> list[str]:
    """Return the words between the commas of `text`; one that is empty is mostly a space, where the shell cut it."""
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise argparse.ArgumentTypeError(f"{text!r}: something is missing beside a comma; write no spaces: A,B")
    return words


def refuse_twins(values: Sequence[object], text: str) -> None:
    """Raise where a list from the command line, `text`, names one twice."""
    if len(set(values)) < len(values):
        raise argparse.ArgumentTypeError(f"{text!r} names one twice")


def address(text: str) -> str:
    """Return `text`, HOST:PORT."""
    found = _ADDRESS.fullmatch(text)
    if found is None or not 0 < int(found["port"]) < 65536:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not HOST:PORT, such as node0:29500: a host name, an IPv4 address or an [IPv6 address], "
            "and a port from 1 to 65535"
        )
    return text


def folder_path(text: str) -> Path:
    """Return `text` as a path; an empty one would mean the working folder."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty; name a folder, or . for this one")
    return Path(text)


def file_path(text: str) -> Path:
    """Return `text` as the path of a file."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty; name a file")
    return Path(text)


def existing_path(text: str) -> Path:
    """Return `text` as a path that is read; an empty one would mean the working folder."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty; name a file, or a folder (. for this one)")
    return Path(text)


def recipe_reference(text: str) -> str:
    """Return `text`, a preset's name or a path."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty; name a preset (see `gradwire presets`) or a file")
    return text


RECIPE_COMPLETION = {
    "bash": "_gradwire_recipes",
    "zsh": "_gradwire_recipes",
    "fish": "(gradwire presets 2>/dev/null | string match -rg '^(\\S+)'; __fish_complete_path (commandline -ct))",
    "preamble": {
        "bash": "_gradwire_recipes() {\n"
        '  compgen -W "$(gradwire presets 2>/dev/null | cut -d" " -f1)" -- "$1"\n'
        '  compgen -f -- "$1"\n'
        "}",
        "zsh": "_gradwire_recipes() {\n"
        "  local -a names\n"
        '  names=(${(f)"$(gradwire presets 2>/dev/null | cut -d" " -f1)"})\n'
        "  compadd -a names\n"
        "  _files\n"
        "}",
    },
}
