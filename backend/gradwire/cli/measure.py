"""`gradwire measure`: run your own training command and measure it."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from gradwire.cli.folders import plain_name, reserved_folder
from gradwire.cli.options import add_json, folder_path, positive_integer, positive_number
from gradwire.cli.output import note, plain, say, say_json
from gradwire.errors import UsageError

if TYPE_CHECKING:
    from gradwire.documents.measurement_schema import Measurement, TimeSplit
    from gradwire.measure.watched_utilization import GivenFigures

DESCRIPTION = """\
Run your own training command, as you would without Gradwire, and measure it:
steps, samples and tokens per second, where the time goes, memory. Nothing in
the script changes. Its output, its signals and its exit code are its own; the
summary goes to stderr. What cannot be seen from outside is said.

Without a command, --out DIR puts together what a run left there that was
killed with `gradwire measure` itself."""
EXAMPLES = """\
  gradwire measure -- python train.py --epochs 2
  gradwire measure --out runs/two -- torchrun --nproc-per-node 2 train.py
  gradwire measure --layers 24 --hidden-size 2048 -- python own_model.py
  gradwire measure --tracker tensorboard -- python train.py
  gradwire measure -- accelerate launch --config_file a.yaml train.py
  gradwire measure -- deepspeed train.py --deepspeed_config ds.json
  gradwire report runs/one runs/two          # what was measured, compared"""

_STARTUP = Path(__file__).parents[1] / "integrations" / "attach" / "startup"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--out, the warm-up, and the command after `--`."""
    parser.usage = "gradwire measure [options] -- COMMAND ARGS..."
    parser.add_argument(
        "--out", type=folder_path, metavar="DIR", help="folder of the run (runs/measure-SCRIPT, a new one)"
    )
    parser.add_argument(
        "--warmup-steps",
        type=positive_integer,
        default=3,
        metavar="N",
        help="first steps to leave out of every timing, at least 1 (3)",
    )
    parser.add_argument(
        "--tracker",
        action="append",
        default=[],
        metavar="NAME",
        help="also log each step there: tensorboard, wandb (offline), mlflow, trackio, prometheus; again for more",
    )
    group = parser.add_argument_group("for the MFU, where it cannot be seen (its reason says what is missing)")
    group.add_argument("--layers", type=positive_integer, metavar="L", help="layers with attention in the model")
    group.add_argument("--hidden-size", type=positive_integer, metavar="H", help="heads x head size in each of them")
    group.add_argument(
        "--flops-per-token", type=positive_number, metavar="F", help="model FLOPs per token, forward and backward"
    )
    group.add_argument(
        "--peak-flops",
        type=positive_number,
        metavar="P",
        help="dense FLOP/s of one device in the data type of the products, such as 989e12; else the vendor's, or what "
        "GRADWIRE_PEAK names",
    )
    add_json(parser)
    parser.set_defaults(program=None)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; its exit code is this one's."""
    if not arguments.program:
        from gradwire.measure.rank_log import has_rank_logs

        if arguments.out is None or not has_rank_logs(arguments.out):
            raise UsageError("a command is missing: gradwire measure -- python train.py")
        return _put_together(arguments.out, arguments)
    if shutil.which(arguments.program[0]) is None:
        raise UsageError(f"{arguments.program[0]}: no such command; what follows `--` is run as it stands")
    if arguments.out is not None:
        return _run_in(arguments.out, arguments)
    with reserved_folder(f"measure-{plain_name(_script(arguments.program))}") as folder:
        return _run_in(folder, arguments)


def _given(arguments: argparse.Namespace) -> GivenFigures:
    from gradwire.measure.matmul_peak import PEAK_VARIABLE, read_matmul_peak
    from gradwire.measure.watched_utilization import GivenFigures

    if (arguments.layers is None) != (arguments.hidden_size is None):
        raise UsageError("--layers and --hidden-size go together: attention takes 12 L h s FLOPs per token")
    file = os.environ.get(PEAK_VARIABLE)
    return GivenFigures(
        flops_per_token=arguments.flops_per_token,
        layers=arguments.layers,
        hidden_size=arguments.hidden_size,
        peak_flops=arguments.peak_flops,
        measured_peak=read_matmul_peak(Path(file)) if file else None,
    )


def _run_in(folder: Path, arguments: argparse.Namespace) -> int:
    from gradwire.launch.attended import run_attended
    from gradwire.launch.watched import Watched

    watched = Watched(folder, trackers=arguments.tracker, given=_given(arguments))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(_STARTUP), os.environ.get("PYTHONPATH")])),
        "GRADWIRE_MEASURE": str(watched.ranks.absolute()),
        "GRADWIRE_MEASURE_WARMUP": str(arguments.warmup_steps),
    }
    code = run_attended(
        arguments.program,
        environment=environment,
        every_second=watched.look,
        stdout=sys.stderr.buffer if arguments.json else None,
    )
    return _report(*watched.end(), code, folder, arguments)


def _put_together(folder: Path, arguments: argparse.Namespace) -> int:
    from gradwire.launch.watched import put_together

    measurement, why = put_together(folder, _given(arguments))
    return _report(measurement, why, 1 if measurement is None else 0, folder, arguments)


def _report(
    measurement: Measurement | None, why: str | None, code: int, folder: Path, arguments: argparse.Namespace
) -> int:
    if arguments.json:
        document = plain(measurement) if measurement else None
        say_json({"exit_code": code, "folder": str(folder), "measurement": document, "reason": why})
        return code
    if measurement is None:
        note(f"gradwire measure: nothing was measured: {why}")
        return code
    with redirect_stdout(sys.stderr):
        _say(measurement, folder)
    return code


def _say(measurement: Measurement, folder: Path) -> None:
    from gradwire.cli.measured import say_measurement
    from gradwire.compare.format import processes

    say("")
    say(f"{measurement.recipe_name}, {processes(measurement.world.world_size)} on {measurement.world.device}")
    say_measurement(measurement)
    if measurement.time_split is not None:
        say(f"  of a step: {_split(measurement.time_split)}")
    say(f"  {folder}/measurement.json, {folder}/steps.jsonl")


def _split(split: TimeSplit) -> str:
    parts = {
        "input wait": split.input_wait,
        "passes": split.compute,
        "optimizer": split.optimizer,
        "straggler wait": split.straggler_wait,
        "other": split.other,
    }
    whole = sum(parts.values()) or 1.0
    return ", ".join(f"{name} {seconds / whole:.1%}" for name, seconds in parts.items())


def _script(words: tuple[str, ...]) -> str:
    """Return the word that names the run: the script, or the command."""
    scripts = [word for word in words if word.endswith(".py")]
    return Path(scripts[0] if scripts else words[0]).stem
