"""`gradwire parity`: train one recipe on the same text with several backends, and say where they first differ."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from gradwire.cli.cells import reason_of
from gradwire.cli.folders import held_folder, plain_name, reserved_folder
from gradwire.cli.launch import check_fit, start
from gradwire.cli.options import (
    BACKEND_NAMES,
    add_changes,
    add_json,
    add_recipe,
    add_several_runs,
    backend_list,
    folder_path,
    positive_integer,
    positive_number,
)
from gradwire.cli.output import note, plain, say, say_json, wrapped
from gradwire.cli.steps import load, lower_loaded
from gradwire.errors import CannotLower, EnvironmentNotFit, GradwireError, RunFailed, ThresholdNotMet, UsageError

if TYPE_CHECKING:
    from gradwire.artifact import Artifact
    from gradwire.documents.measurement_schema import Measurement
    from gradwire.documents.parity_schema import Parity, ParityRun, Tolerances
    from gradwire.documents.plan_schema import Plan
    from gradwire.plan import Backend
    from gradwire.recipe import LoadedRecipe

DESCRIPTION = """\
Train one recipe for a few steps on the same text with each backend, and compare
every step: what it was taken over, learning rate, loss and gradient norm. The
first value that differs is named, and what that usually comes from. Writes
parity.json, which `gradwire lower` then cites. Exit code 5 when backends
differ, 1 when a run failed."""
EXAMPLES = """\
  gradwire parity cpu/ddp --backends native,accelerate,deepspeed --num-gpus 2
  gradwire parity mine.yaml --num-gpus 4 --steps 20
  gradwire parity cpu/zero2 --num-gpus 2 --allow-lossy      # native trains fsdp"""

PARITY_FILE = "parity.json"

_STEPS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class _Lowered:
    """A backend that can run the recipe here."""

    plan: Plan
    artifact: Artifact
    folder: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class _Outcome:
    """What came of the runs, which grow."""

    runs: list[ParityRun] = field(default_factory=list)
    left_out: list[GradwireError] = field(default_factory=list)
    measurements: dict[str, Measurement] = field(default_factory=dict)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """RECIPE, the backends, and how long and how close."""
    parser.usage = "gradwire parity RECIPE [--backends B,B] [--num-gpus N] [options]"
    add_recipe(parser)
    parser.add_argument(
        "--backends",
        type=backend_list,
        metavar="B,B",
        help="the first is what the others are held against (all that can run the recipe here)",
    )
    parser.add_argument("--steps", type=positive_integer, metavar="N", help=f"optimizer steps ({_STEPS})")
    parser.add_argument(
        "--loss-tolerance", type=positive_number, metavar="X", help="relative, of each loss (1e-4; 1e-2 in 16 bits)"
    )
    parser.add_argument(
        "--norm-tolerance", type=positive_number, metavar="X", help="of each gradient norm (1e-3; 5e-2 in 16 bits)"
    )
    parser.add_argument(
        "--out", type=folder_path, metavar="DIR", help="folder of the runs (runs/parity-RECIPE, a new one)"
    )
    add_several_runs(parser)
    add_json(parser)
    add_changes(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run every backend, write parity.json, print it."""
    loaded = load(arguments.recipe, arguments)
    if arguments.out is not None:
        with held_folder(arguments.out):
            return _run_in(arguments.out, loaded, arguments)
    with reserved_folder(f"parity-{plain_name(loaded.name)}") as folder:
        return _run_in(folder, loaded, arguments)


def _run_in(folder: Path, loaded: LoadedRecipe, arguments: argparse.Namespace) -> int:
    from gradwire.measure.document import document_text, write_text

    outcome = _Outcome()
    lowered = list(_lower_all(folder, loaded, arguments, outcome))
    if len(lowered) < 2:
        reasons = "".join(f"\n  {run.backend}: {run.reason}" for run in outcome.runs)
        # Another machine would do where it is the machine that stands in the way.
        able = len(lowered) + sum(isinstance(error, EnvironmentNotFit) for error in outcome.left_out)
        kind = EnvironmentNotFit if able >= 2 else UsageError
        raise kind(f"parity needs two backends, and {len(lowered)} can run {loaded.name} here:{reasons}")
    for number, each in enumerate(lowered, start=1):
        _train(each, f"[{number}/{len(lowered)}] {each.plan.backend}", arguments, outcome)
    parity = _build(loaded, lowered[0].plan, arguments, outcome)
    file = folder / PARITY_FILE
    write_text(file, document_text(parity, "parity"))
    if arguments.json:
        say_json(plain(parity))
    else:
        _say(parity, loaded.name)
        say(f"  {file}")
    return {"same": 0, "differs": ThresholdNotMet.exit_code, "incomplete": RunFailed.exit_code}[parity.verdict]


def _lower_all(
    folder: Path, loaded: LoadedRecipe, arguments: argparse.Namespace, outcome: _Outcome
) -> Iterator[_Lowered]:
    """Yield each backend that can run the recipe here; raises for one that was asked for by name and cannot."""
    short = load(arguments.recipe, _shortened(loaded, arguments))
    for backend in arguments.backends or BACKEND_NAMES:
        place = folder / backend
        try:
            plan, artifact = lower_loaded(
                short, arguments, backend=backend, folder=place, allow_lossy=arguments.allow_lossy
            )
            check_fit(plan, artifact, arguments)
        except (CannotLower, EnvironmentNotFit) as error:
            if arguments.backends:
                raise
            outcome.left_out.append(error)
            outcome.runs.append(_without_measurement(backend, "left-out", error, None))
        else:
            yield _Lowered(plan=plan, artifact=artifact, folder=place)


def _shortened(loaded: LoadedRecipe, arguments: argparse.Namespace) -> argparse.Namespace:
    """Return the arguments for a few untimed steps at the beginning of the whole run's learning rates."""
    training = loaded.recipe.training
    steps = arguments.steps or min(_STEPS, training.max_steps)
    sets = [f"training.max_steps={steps}", f"measurement.warmup_steps={steps}"]
    if training.scheduler.type != "constant" and training.scheduler.total_steps is None:
        sets.append(f"training.scheduler.total_steps={training.max_steps}")
    return argparse.Namespace(**{**vars(arguments), "sets": [*arguments.sets, *sets]})


def _train(each: _Lowered, title: str, arguments: argparse.Namespace, outcome: _Outcome) -> None:
    from gradwire.documents.parity_schema import ParityRun

    backend = each.plan.backend
    note(f"{title} ...")
    try:
        seconds, measurement = start(each.artifact, each.folder, arguments, echo=False)
    except GradwireError as error:
        note(f"{title}: failed: {reason_of(error)}")
        outcome.runs.append(_without_measurement(backend, "failed", error, each.folder.name))
        return
    if measurement is None:
        raise RunFailed(f"the run ended well but left no measurement in {each.folder}")
    note(f"{title}: {measurement.steps.trained} steps ({seconds:.0f} s)")
    outcome.measurements[backend] = measurement
    outcome.runs.append(
        ParityRun(
            backend=backend,
            status="ok",
            reason=None,
            folder=each.folder.name,
            versions=dict(measurement.versions),
            is_lossy=any(field.outcome == "refused" for field in each.artifact.report.fields),
        )
    )


def _without_measurement(backend: str, status: str, error: GradwireError, folder: str | None) -> ParityRun:
    from gradwire.documents.parity_schema import ParityRun

    return ParityRun(
        backend=cast("Backend", backend),
        status="failed" if status == "failed" else "left-out",
        reason=reason_of(error),
        folder=folder,
        versions={},
    )


def _build(loaded: LoadedRecipe, plan: Plan, arguments: argparse.Namespace, outcome: _Outcome) -> Parity:
    from gradwire.compare.parity import build_parity
    from gradwire.plan import recipe_sha256

    return build_parity(
        recipe_name=loaded.name,
        recipe_sha256=recipe_sha256(loaded.recipe),
        world=plan.world,
        steps=plan.recipe.training.max_steps,
        tolerances=_tolerances(loaded, arguments),
        runs=outcome.runs,
        measurements=outcome.measurements,
    )


def _tolerances(loaded: LoadedRecipe, arguments: argparse.Namespace) -> Tolerances:
    from gradwire.compare.parity import default_tolerances
    from gradwire.documents.parity_schema import Tolerances

    default = default_tolerances(loaded.recipe.training.precision)
    return Tolerances(
        loss=arguments.loss_tolerance or default.loss,
        gradient_norm=arguments.norm_tolerance or default.gradient_norm,
        learning_rate=default.learning_rate,
    )


def _say(parity: Parity, name: str) -> None:
    from gradwire.compare.parity_text import findings, parity_rows, verdict_text

    world = parity.world
    say(f"{name} on {world.world_size} process{'' if world.world_size == 1 else 'es'} ({world.device})")
    rows = parity_rows(parity)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        say("  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
    for text, cause in findings(parity):
        say(wrapped(text, indent=4, first="  "))
        say(wrapped(f"points to: {cause}", indent=6, first="    "))
    for run_made in parity.runs:
        if run_made.reason is not None:
            say(wrapped(f"{run_made.backend} {run_made.status}: {run_made.reason}", indent=4, first="  "))
    say(verdict_text(parity))
