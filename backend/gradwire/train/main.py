"""The worker's command line: reads the plan, checks the world, runs, and turns an error into an exit code."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from gradwire.documents.plan_schema import Plan
from gradwire.errors import EnvironmentNotFit, GradwireError
from gradwire.measure.matmul_peak import PEAK_VARIABLE, read_matmul_peak
from gradwire.reading import explain_refused_path
from gradwire.trackers.interface import check_trackers
from gradwire.train.failure import record_failure
from gradwire.train.reading import read_plan
from gradwire.train.setting import (
    EveryRankFailed,
    Place,
    Setting,
    check_device_can,
    check_world_size,
    read_place,
    require_model,
)

# Ranks start together; on a busy machine one may be this much behind another.
_SPOKEN_SECONDS = 10.0
_PACKAGES = {
    "native": ("torch", "transformers", "numpy"),
    "accelerate": ("torch", "transformers", "numpy", "accelerate"),
    "deepspeed": ("torch", "transformers", "numpy", "deepspeed"),
    "trainer": ("torch", "transformers", "numpy", "accelerate"),
}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one rank and end the process: 0, or the exit code of the error's class; 1 after a traceback."""
    sys.excepthook = _print_and_leave
    place = Place(rank=0, local_rank=0, world_size=1, launched=False)
    try:
        options = _parse(arguments)
        place = read_place(os.environ)
        setting = replace(_prepare(options.plan, place), save_every=options.save_every, resume=options.resume)
    except GradwireError as error:
        _leave_with_word(error, place)
    except OSError as error:
        refused = explain_refused_path(error)
        if refused is None:
            raise
        _leave_with_word(refused, place)
    try:
        _run(setting, options.out or setting.folder)
    except GradwireError as error:
        record_failure(error, environment=os.environ)
        if place.rank == 0 or not isinstance(error, EveryRankFailed):
            sys.stderr.write(f"gradwire: rank {place.rank}: {error}\n")
        _leave_after_others_asked(error.exit_code)
    _leave(0)


def _leave_with_word(error: GradwireError, place: Place) -> NoReturn:
    """End before the ranks met: every one of a machine finds the same mistake, and one says it."""
    record_failure(error, environment=os.environ)
    if place.local_rank == 0:
        sys.stderr.write(f"gradwire: {error}\n")
    else:
        # A launcher ends all its ranks when the first one has ended: that is to be the one that speaks.
        time.sleep(_SPOKEN_SECONDS)
    _leave(error.exit_code)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m gradwire.train",
        description="Train the plan that `gradwire lower` wrote. Start it with the command in launch.sh beside the "
        "plan: one process per rank, under torchrun, accelerate launch or deepspeed.",
        allow_abbrev=False,
    )
    parser.add_argument("plan", type=Path, help="plan.json, or the folder that holds it")
    parser.add_argument("--out", type=Path, help="folder for measurement.json (default: beside the plan)")
    parser.add_argument(
        "--save-every", type=_steps, metavar="N", help="write a checkpoint every N steps and at the end, in --out"
    )
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="go on from a checkpoint, the newest in FOLDER")
    # The deepspeed launcher appends this one; the environment says the same.
    parser.add_argument("--local_rank", "--local-rank", type=int, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _steps(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _prepare(path: Path, place: Place) -> Setting:
    plan, folder = read_plan(path)
    require_model(plan)
    check_device_can(plan)
    check_world_size(plan, place, os.environ)
    _check_packages(plan)
    file = os.environ.get(PEAK_VARIABLE)
    return Setting(plan=plan, folder=folder, place=place, measured_peak=read_matmul_peak(Path(file)) if file else None)


def _check_packages(plan: Plan) -> None:
    needed = list(_PACKAGES[plan.backend])
    if plan.backend in ("accelerate", "trainer") and plan.recipe.parallelism.data.strategy.startswith("zero"):
        needed.append("deepspeed")
    missing = [package for package in needed if importlib.util.find_spec(package) is None]
    if missing:
        extra = "deepspeed" if "deepspeed" in missing else "accelerate" if plan.backend == "trainer" else plan.backend
        extras = "accelerate,deepspeed" if {"accelerate", "deepspeed"} <= set(missing) else extra
        raise EnvironmentNotFit(
            f"not installed: {', '.join(missing)}; `pip install 'gradwire[{extras}]'` installs what the plan needs"
        )
    check_trackers(plan.recipe.measurement.trackers)


def _run(setting: Setting, out_folder: Path) -> None:
    if setting.plan.world.device == "cpu" and setting.plan.backend != "native":
        # Read when deepspeed is first imported; Accelerate imports it too.
        os.environ["DS_ACCELERATOR"] = "cpu"
    from gradwire.train.process_group import explain_collective_failure, leave_on_termination
    from gradwire.train.run import run

    leave_on_termination(setting.place.rank)
    try:
        run(setting, out_folder)
    except RuntimeError as error:
        explained = explain_collective_failure(error, setting.plan.world)
        if explained is None:
            raise
        raise explained from None


def _print_and_leave(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
    """End after a bug's traceback: threads of the communication library must not keep the process alive."""
    # torch.distributed puts its own hook before this one and a buffer in the place of sys.stderr.
    traceback.print_exception(kind, value, trace, file=sys.__stderr__)
    _leave(1)


def _leave_after_others_asked(exit_code: int) -> NoReturn:
    # What a rank needs torch for has loaded it by now.
    if "torch" in sys.modules:
        from gradwire.train.communication.roll_call import roll_call

        asked = roll_call()
        if asked is not None:
            sys.stderr.flush()
            asked.linger()
    _leave(exit_code)


def _leave(exit_code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr, sys.__stderr__):
        if stream is not None:
            stream.flush()
    os._exit(exit_code)
