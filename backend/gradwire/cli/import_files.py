"""`gradwire import`: the configuration files that people already have become a recipe."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradwire.cli.options import add_json, positive_integer
from gradwire.cli.output import note, say, say_json, shown, wrapped

if TYPE_CHECKING:
    from gradwire.importing.engine import Imported
    from gradwire.importing.entry import Entry
    from gradwire.targets.job import Job, LaunchFacts

DESCRIPTION = """\
Make a recipe of a DeepSpeed JSON (strict or hjson), an Accelerate YAML or
JSON, or a pair of them: it lowers back to what the programs end up with from
these files. Every key is accounted for on stderr: carried by a key of the
recipe, made explicit (a hidden default), kept in the recipe's section for the
backend, idle (the program ignores it), or refused. Comments stay. The recipe
goes to stdout, or to --out. Loads no torch.

Ends with 2 where a file cannot be read or its own program refuses it, with 3
where a recipe cannot say a key."""
EXAMPLES = """\
  gradwire import ds_config.json --num-processes 8 --out mine.yaml
  gradwire import accelerate.yaml ds_config.json > mine.yaml
  gradwire import ds_config.json --trainer-arguments args.json
  gradwire import ds_config.json --allow-lossy --json"""

_WORDS = {
    "carried": "carried",
    "explicit": "hidden defaults, made explicit",
    "kept": "kept for the backend",
    "idle": "idle, left out",
    "refused": "refused, left out",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """FILE..., the facts of the launch, and where to."""
    parser.add_argument("files", metavar="FILE", nargs="+", help="configuration files of one job")
    add_facts(parser)
    parser.add_argument("--out", metavar="FILE", type=Path, help="write the recipe there; absent: to stdout")
    parser.add_argument("--force", action="store_true", help="write over --out where it exists")
    parser.add_argument(
        "--allow-lossy", action="store_true", help="leave out what a recipe cannot say, and report it, instead of 3"
    )
    add_json(parser)


def add_facts(parser: argparse.ArgumentParser, *, with_kind: bool = True) -> None:
    """What the command line of a launch settles beside the files."""
    facts = parser.add_argument_group("what is known about the launch")
    facts.add_argument("--num-processes", metavar="N", type=positive_integer, help="processes over all machines")
    facts.add_argument("--num-machines", metavar="N", type=positive_integer, help="machines")
    facts.add_argument("--mixed-precision", choices=("no", "fp16", "bf16", "fp8"), help="as given to accelerate launch")
    facts.add_argument("--trainer-arguments", metavar="FILE", type=Path, help="the Trainer's arguments as JSON")
    facts.add_argument(
        "--hidden-size", metavar="N", type=positive_integer, help='of the model, from which the Trainer fills "auto"'
    )
    if not with_kind:
        return
    facts.add_argument(
        "--kind", choices=("deepspeed", "accelerate", "trainer"), help="what every FILE is; absent: look"
    )


def facts_of(arguments: argparse.Namespace) -> LaunchFacts:
    """Return what the options of `add_facts` say of the launch."""
    from gradwire.targets.job import LaunchFacts

    return LaunchFacts(
        num_processes=arguments.num_processes,
        num_machines=arguments.num_machines,
        mixed_precision=arguments.mixed_precision,
        hidden_size=arguments.hidden_size,
    )


def job_of(arguments: argparse.Namespace, files: list[str]) -> Job:
    """Return the job that the files and the facts of the launch make."""
    from gradwire.targets.grouping import one_job

    paths = [Path(name) for name in dict.fromkeys(files)]
    return one_job(paths, facts=facts_of(arguments), trainer_arguments=arguments.trainer_arguments, kind=arguments.kind)


def run(arguments: argparse.Namespace) -> int:
    """Import the files; what keeps them from it is an error."""
    from gradwire.cli.new_file import check_free, write_new
    from gradwire.importing.engine import import_job
    from gradwire.importing.recipe_text import recipe_text
    from gradwire.recipe.load import load_text

    out: Path | None = arguments.out
    if out is not None:
        check_free(out, force=arguments.force)
    job = job_of(arguments, arguments.files)
    imported = import_job(job, allow_lossy=arguments.allow_lossy)
    documents = [document for document in (job.accelerate, job.deepspeed, job.trainer) if document is not None]
    text = recipe_text(imported, documents)
    load_text(text, source=str(out or "the imported recipe"))
    if out is not None:
        write_new(out, text, force=arguments.force)
    if arguments.json:
        say_json(_document(imported, text, out))
    elif out is None:
        say(text.rstrip("\n"))
    _note_report(imported, out)
    return 0


def _document(imported: Imported, text: str, out: Path | None) -> dict[str, Any]:
    from gradwire.cli.output import plain

    return {
        "out": None if out is None else str(out),
        "recipe": text,
        "sources": list(imported.sources),
        "entries": [plain(entry) for entry in imported.entries],
        "assumptions": [plain(assumption) for assumption in imported.assumptions],
        "lower": ["gradwire", "lower", str(out or "RECIPE"), *imported.lower_options],
    }


def _note_report(imported: Imported, out: Path | None) -> None:
    for outcome, words in _WORDS.items():
        entries = [entry for entry in imported.entries if entry.outcome == outcome]
        if entries:
            note(f"{words}: {len(entries)}")
        for entry in entries:
            note(wrapped(_line(entry), indent=6, first="  "))
    if imported.assumptions:
        note("not said by these files; the recipe has:")
    for each in imported.assumptions:
        note(wrapped(f"{each.path}: {shown(each.value)} ({each.why})", indent=6, first="  "))
    note(f"lower it: gradwire lower {out or 'RECIPE'} {' '.join(imported.lower_options)} --out DIR")


def _line(entry: Entry) -> str:
    place = f"{entry.file}:{entry.line}:{entry.column} " if entry.file else ""
    into = f" -> {entry.into}" if entry.into else ""
    why = f": {entry.note}" if entry.note else ""
    return f"{place}{entry.path} = {shown(entry.value)}{into}{why}"
