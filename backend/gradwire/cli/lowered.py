"""What a lowering looks like on the screen: fields, files, the command, and what was read back."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from gradwire.cli.output import note, plain, say, shown, table, wrapped

if TYPE_CHECKING:
    from gradwire.artifact import Artifact
    from gradwire.documents.lowering_schema import FieldOutcome, LoweringReport
    from gradwire.documents.plan_schema import Plan

_USUAL_GPUS = 8
_OUTCOMES = ("exact", "emulated", "refused", "unused")


def lowered_document(plan: Plan, artifact: Artifact, folder: PurePath, *, written: bool) -> dict[str, Any]:
    """Return the --json result of a lowering; with nothing written it carries the files' contents."""
    from gradwire.artifact import command_line, command_words

    return {
        "recipe": plan.recipe_name,
        "backend": plan.backend,
        "world": plain(plan.world),
        "folder": str(folder) if written else None,
        "files": sorted(artifact.files) if written else dict(sorted(artifact.files.items())),
        "command": command_words(artifact, folder),
        "environment": dict(sorted(artifact.environment.items())),
        "command_line": command_line(artifact, folder),
        "report": plain(artifact.report),
    }


def headline(plan: Plan) -> str:
    """Return one line: what runs where."""
    world = plan.world
    count = f"{world.world_size} process{'' if world.world_size == 1 else 'es'}"
    nodes = f" over {world.num_nodes} nodes" if world.num_nodes > 1 else ""
    return f"{plan.recipe_name} on {plan.backend}, {count}{nodes} on {world.device}"


def note_size(plan: Plan, arguments: argparse.Namespace) -> None:
    """Say so on stderr where the plan takes more or fewer GPUs of a machine than machines usually have."""
    world = plan.world
    if world.device != "cuda":
        return
    each = world.processes_per_node
    if each > _USUAL_GPUS:
        nodes = -(-world.world_size // _USUAL_GPUS)
        note(
            f"gradwire: this is for {each} GPUs in one machine; for machines of {_USUAL_GPUS} say "
            f"--num-nodes {nodes} --rdzv HOST:PORT, and --node-rank on each"
        )
    elif world.num_nodes > 1 and each < _USUAL_GPUS and arguments.num_gpus is None:
        note(
            f"gradwire: the recipe is for {world.world_size} GPUs, which are {each} on each of {world.num_nodes} "
            f"machines; --num-gpus {world.num_nodes * _USUAL_GPUS} takes {_USUAL_GPUS} on each"
        )


def say_fields(report: LoweringReport, *, verbose: bool) -> None:
    """Print what became of the fields: the notable ones, or all of them."""
    counts = Counter[str](field.outcome for field in report.fields)
    say("fields: " + ", ".join(f"{counts[outcome]} {outcome}" for outcome in _OUTCOMES if counts[outcome]))
    shown_fields = [field for field in report.fields if verbose or field.outcome in ("emulated", "refused")]
    if verbose:
        _say_each(shown_fields)
    else:
        _say_grouped(shown_fields)
    if report.defaults and verbose:
        say("hidden defaults of the backend, overwritten:")
        say(table([(d.key, f"{shown(d.value)}, not {shown(d.hidden_default)}: {d.why}") for d in report.defaults]))
    elif report.defaults:
        say(f"hidden defaults of the backend, overwritten: {len(report.defaults)} (--verbose lists them)")
    if report.extras:
        say(wrapped(f"from the recipe's backends: {', '.join(report.extras)}", indent=2, first=""))


def say_reread(report: LoweringReport) -> None:
    """Print what the target's own loader read back."""
    reread = report.reread
    match reread.status:
        case "equal":
            say(f"read back by {reread.loader}: all {len(reread.values)} values equal the plan's")
        case "skipped":
            say(wrapped(f"not read back: {reread.reason}", indent=2, first=""))
        case "different":
            say(f"read back by {reread.loader}: DIFFERENT from the plan:")
            rows = [(value.name, f"{shown(value.loaded)}, not {shown(value.planned)}") for value in _different(report)]
            say(table(rows))


def difference_text(report: LoweringReport) -> str:
    """Return one line that names each value that was read back differently."""
    return "; ".join(
        f"{value.name} is {shown(value.loaded)}, not {shown(value.planned)}" for value in _different(report)
    )


def _different(report: LoweringReport) -> Iterable[Any]:
    return [value for value in report.reread.values if not value.equal]


def _say_each(fields: Iterable[FieldOutcome]) -> None:
    for field in fields:
        carried = f" by {field.carrier}" if field.carrier else ""
        noted = f": {field.note}" if field.note else ""
        say(wrapped(f"{field.path} = {shown(field.value)}: {field.outcome}{carried}{noted}", indent=6, first="  "))


def _say_grouped(fields: Iterable[FieldOutcome]) -> None:
    """Fields with the same story are told once."""
    stories: dict[tuple[str, str, str], list[str]] = {}
    for field in fields:
        story = (field.outcome, field.carrier or "", field.note or "")
        stories.setdefault(story, []).append(f"{field.path}={shown(field.value)}")
    for (outcome, carrier, noted), paths in stories.items():
        carried = f" by {carrier}" if carrier else ""
        say(wrapped(f"{outcome}{carried}: {', '.join(paths)}", indent=6, first="  "))
        if noted:
            say(wrapped(noted, indent=6))
