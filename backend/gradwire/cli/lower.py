"""`gradwire lower`: write a backend's configuration files and the launch command."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from gradwire.cli.lowered import (
    difference_text,
    headline,
    lowered_document,
    note_size,
    say_fields,
    say_reread,
)
from gradwire.cli.options import add_backend, add_changes, add_json, add_nodes, add_recipe, check_nodes, folder_path
from gradwire.cli.output import note, say, say_json, wrapped
from gradwire.cli.parity_evidence import parity_check, parity_text
from gradwire.cli.steps import load, lower_loaded, write_and_reread
from gradwire.errors import RunFailed

if TYPE_CHECKING:
    from gradwire.artifact import Artifact
    from gradwire.documents.lowering_schema import ParityCheck
    from gradwire.documents.plan_schema import Plan

DESCRIPTION = """\
Write a backend's configuration files and the exact launch command. Every field
of the recipe is accounted for in lowering.json; what the backend cannot express
is an error (exit code 3). Then the backend's own loader, where it is installed,
reads the files back, and every value is compared with the plan."""
EXAMPLES = """\
  gradwire lower h100-8-overlap --backend accelerate --out out/
  gradwire lower zero3 --backend deepspeed --dry-run
  gradwire lower mine.yaml --backend accelerate --out out/ -- train.py
  gradwire lower h100-128 --backend native --out out/ --num-nodes 16 \\
      --rdzv node0:29500"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """RECIPE, --backend, where to, and the changes."""
    parser.usage = (
        "gradwire lower RECIPE --backend B (--out DIR | --dry-run)\n                      [options] [-- SCRIPT ARGS...]"
    )
    add_recipe(parser)
    add_backend(parser)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--out", type=folder_path, metavar="DIR", help="folder for the files; written whole or not at all"
    )
    where.add_argument("--dry-run", action="store_true", help="print the files and the command, touch no disk")
    parser.add_argument("--no-reread", action="store_true", help="don't have the backend's loader read the files back")
    parser.add_argument("--verbose", action="store_true", help="what became of every field, not only of notable ones")
    add_json(parser)
    add_changes(parser)
    add_nodes(parser)
    parser.set_defaults(program=None)


def run(arguments: argparse.Namespace) -> int:
    """Lower, write, read back; RunFailed where the loader read another value than the plan's."""
    check_nodes(arguments)
    loaded = load(arguments.recipe, arguments)
    folder: Path = arguments.out or Path("out")
    plan, artifact = lower_loaded(
        loaded, arguments, backend=arguments.backend, folder=folder, allow_lossy=arguments.allow_lossy
    )
    artifact = _with_parity(artifact, parity_check(loaded, plan, arguments))
    if not arguments.dry_run:
        artifact = _write(artifact, folder) if arguments.no_reread else write_and_reread(artifact, folder)
    document = lowered_document(plan, artifact, folder, written=not arguments.dry_run)
    note_size(plan, arguments)
    different = artifact.report.reread.status == "different"
    if arguments.json:
        say_json(document)
    else:
        say(headline(plan))
        say_fields(artifact.report, verbose=arguments.verbose)
        if arguments.dry_run:
            for name, text in artifact.files.items():
                if name != "lowering.json" or arguments.verbose:
                    say(f"\n--- {name}\n{text.rstrip()}")
        else:
            say_reread(artifact.report)
            if artifact.report.parity is not None:
                say(wrapped(parity_text(artifact.report.parity), indent=2, first=""))
            say(f"files in {folder}: {', '.join(sorted(artifact.files))}")
        _say_command(document["command_line"], plan, folder, arguments)
    if different:
        note(f"gradwire: {folder}: the loader reads other values than planned: {difference_text(artifact.report)}")
    return RunFailed.exit_code if different else 0


def _say_command(line: str, plan: Plan, folder: Path, arguments: argparse.Namespace) -> None:
    nodes = plan.world.num_nodes
    if nodes == 1 or arguments.dry_run:
        say(f"\nrun it:\n  {line}")
        return
    script = shlex.quote(str(folder / "launch.sh") if folder != Path() else "./launch.sh")
    say(f"\nrun it on each of the {nodes} machines, with its own number:")
    say(f"  NODE_RANK=0 {script}    # or, under Slurm: srun {script}")
    say(f"which is, on number {arguments.node_rank}:\n  {line}")


def _with_parity(artifact: Artifact, check: ParityCheck | None) -> Artifact:
    from gradwire.artifact import with_parity

    return with_parity(artifact, check)


def _write(artifact: Artifact, folder: Path) -> Artifact:
    from gradwire.artifact import write_artifact

    write_artifact(artifact, folder)
    return artifact
