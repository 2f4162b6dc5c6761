"""`gradwire launch`: lower a recipe, run it, and measure it."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from gradwire.cli.folders import fresh_folder, held_folder, plain_name, reserved_folder
from gradwire.cli.lowered import headline, lowered_document, note_size, say_fields
from gradwire.cli.options import (
    add_backend,
    add_changes,
    add_json,
    add_nodes,
    add_recipe,
    check_nodes,
    folder_path,
    positive_integer,
    positive_number,
)
from gradwire.cli.output import note, plain, say, say_json
from gradwire.cli.steps import load, lower_loaded
from gradwire.errors import EnvironmentNotFit, RunFailed, UsageError

if TYPE_CHECKING:
    from gradwire.artifact import Artifact
    from gradwire.documents.measurement_schema import Measurement
    from gradwire.documents.plan_schema import Plan
    from gradwire.recipe import LoadedRecipe

DESCRIPTION = """\
Lower a recipe, check that this machine can run it, run it, and print what was
measured. The run's output goes to stderr, and to launch.log beside the files.
With a script after `--`, that runs instead of gradwire.train; what it measures
is its own affair."""
EXAMPLES = """\
  gradwire launch cpu/ddp --backend native --num-gpus 2
  gradwire launch h100-8-powersgd --backend native --out runs/powersgd
  gradwire launch mine.yaml --backend accelerate -- train.py --epochs 2
  gradwire launch h100-128 --backend deepspeed --num-nodes 16 --node-rank 3 \\
      --rdzv node0:29500            # the same on each node, its own rank"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """RECIPE, --backend, where to, and the changes."""
    parser.usage = "gradwire launch RECIPE --backend B [options] [-- SCRIPT ARGS...]"
    add_recipe(parser)
    add_backend(parser)
    parser.add_argument(
        "--out", type=folder_path, metavar="DIR", help="folder of the run (runs/RECIPE-BACKEND-N, a new one)"
    )
    parser.add_argument("--timeout", type=positive_number, metavar="S", help="stop the run after S seconds")
    parser.add_argument(
        "--save-every",
        type=positive_integer,
        metavar="N",
        help="write a checkpoint every N steps and at the end, to DIR/checkpoints (native)",
    )
    parser.add_argument(
        "--resume", type=folder_path, metavar="DIR", help="go on from the newest checkpoint of an earlier run's folder"
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would run, and what stands in its way")
    add_json(parser)
    add_changes(parser)
    add_nodes(parser)
    parser.set_defaults(program=None)


def run(arguments: argparse.Namespace) -> int:
    """Lower, check, write, run, print; the errors are those of the steps."""
    check_nodes(arguments, scheduler_rank=os.environ.get("SLURM_NODEID"))
    loaded = load(arguments.recipe, arguments)
    if arguments.out is not None:
        # The other machines of a job may share the first one's folder.
        with nullcontext() if arguments.dry_run or arguments.node_rank else held_folder(arguments.out):
            return _run_in(arguments.out, loaded, arguments)
    stem = _default_stem(loaded.name, arguments, loaded.recipe.training.num_gpus)
    if arguments.dry_run:
        return _run_in(fresh_folder(stem), loaded, arguments)
    with reserved_folder(stem) as folder:
        return _run_in(folder, loaded, arguments)


def _run_in(folder: Path, loaded: LoadedRecipe, arguments: argparse.Namespace) -> int:
    plan, artifact = lower_loaded(
        loaded, arguments, backend=arguments.backend, folder=folder, allow_lossy=arguments.allow_lossy
    )
    note_size(plan, arguments)
    if arguments.dry_run:
        return _dry_run(plan, artifact, folder, arguments)
    _checkpoint_words(arguments)
    from gradwire.launch.job import log_name

    check_fit(plan, artifact, arguments)
    _note_cores(plan)
    note(f"{headline(plan)} -> {folder}")
    if (folder / "measurement.json").exists():
        note(f"the measurement of an earlier run in {folder} is replaced")
    seconds, measurement = start(artifact, folder, arguments, echo=True)
    if arguments.json:
        document = lowered_document(plan, artifact, folder, written=True)
        say_json({**document, "seconds": seconds, "measurement": plain(measurement) if measurement else None})
        return 0
    note("")
    say(f"{headline(plan)}: done in {seconds:.1f} s")
    if measurement is not None:
        from gradwire.cli.measured import say_measurement

        say_measurement(measurement)
    say(f"  {folder}/{'measurement.json' if measurement else log_name(arguments.node_rank)}")
    return 0


def _checkpoint_words(arguments: argparse.Namespace) -> list[str]:
    """Return what tells gradwire.train to save and to resume; other verbs that start runs have no such options."""
    options = vars(arguments)
    save_every, resume = options.get("save_every"), options.get("resume")
    if save_every or resume:
        own = "in a script of your own use accelerator.save_state or DeepSpeed's save_checkpoint"
        if options.get("program") is not None:
            raise UsageError(f"--save-every and --resume are for gradwire.train; {own}")
        if arguments.backend != "native":
            raise UsageError(f"--save-every and --resume: Gradwire saves the runs of its native backend; {own}")
    if resume is not None and not resume.is_dir():
        raise UsageError(f"{resume}: no such folder; --resume names that of a run with --save-every, on every machine")
    words = [] if save_every is None else ["--save-every", str(save_every)]
    return words if resume is None else [*words, "--resume", str(resume.resolve())]


def _note_cores(plan: Plan) -> None:
    """Say so on stderr where the GPUs' processes would wait for each other, as on a machine that a scheduler shares."""
    from gradwire.launch.probe import usable_cores

    each, cores = plan.world.processes_per_node, usable_cores()
    if plan.world.device == "cuda" and cores < each:
        note(
            f"gradwire: {each} processes share {cores} cores here, which slows all of them; `gradwire doctor` says more"
        )


def check_fit(plan: Plan, artifact: Artifact, arguments: argparse.Namespace) -> None:
    """Raise EnvironmentNotFit, with every problem, where this machine cannot run the artifact.

    UsageError where the text that it is to train on is missing.
    """
    from gradwire.launch.preflight import check_data_path, preflight
    from gradwire.launch.probe import probe_machine

    options = vars(arguments)
    if options.get("program") is None:
        check_data_path(plan)
    preflight(
        plan,
        probe_machine(os.environ),
        program=options.get("program"),
        launcher=str(artifact.command[0]),
        address=options.get("rdzv") if plan.world.num_nodes > 1 else None,
        node_rank=options.get("node_rank", 0),
        environment=os.environ,
    )


def start(
    artifact: Artifact, folder: Path, arguments: argparse.Namespace, *, echo: bool
) -> tuple[float, Measurement | None]:
    """Write and run `artifact` in `folder`; return the seconds it took and its measurement.

    The measurement is None for a user's own script that left none, and on every node but the first.
    """
    from gradwire.artifact import write_artifact
    from gradwire.launch.job import MEASUREMENT_FILE, run_artifact
    from gradwire.measure.measurement import read_measurement

    options = vars(arguments)
    node_rank = options.get("node_rank", 0)
    write_artifact(artifact, folder)
    ended = run_artifact(
        artifact,
        folder,
        shell=os.environ,
        timeout_seconds=arguments.timeout,
        echo=sys.stderr.buffer if echo else None,
        more_words=_checkpoint_words(arguments),
        node_rank=node_rank,
    )
    file = folder / MEASUREMENT_FILE
    if node_rank or not file.exists():
        if options.get("program") is None and not node_rank:
            raise RunFailed(f"the run ended well but left no {file}; its output is in {ended.log}")
        return ended.seconds, None
    return ended.seconds, read_measurement(file)


def _dry_run(plan: Plan, artifact: Artifact, folder: Path, arguments: argparse.Namespace) -> int:
    try:
        check_fit(plan, artifact, arguments)
        problems = []
    except (EnvironmentNotFit, UsageError) as error:
        problems = str(error).splitlines()
    document = lowered_document(plan, artifact, folder, written=False)
    if arguments.json:
        say_json({**document, "folder": str(folder), "problems": problems})
        return 0
    say(headline(plan))
    say_fields(artifact.report, verbose=False)
    for problem in problems:
        say(f"in the way here: {problem}")
    say(f"would write to {folder}: {', '.join(sorted(artifact.files))}")
    say(f"would run:\n  {document['command_line']}")
    return 0


def _default_stem(name: str, arguments: argparse.Namespace, num_gpus: int) -> str:
    node = f"-node{arguments.node_rank}" if arguments.num_nodes > 1 else ""
    return f"{plain_name(name)}-{arguments.backend}-{num_gpus}{node}"
