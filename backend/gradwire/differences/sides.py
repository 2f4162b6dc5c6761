"""One side of a comparison: a recipe, the configuration files of a job, or a folder that was lowered."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from gradwire.artifact import ACCELERATE_FILE, DEEPSPEED_FILE, PLAN_FILE, TRAINER_FILE
from gradwire.documents.plan_schema import Plan
from gradwire.errors import UsageError
from gradwire.reading import read_text
from gradwire.recipe.extends import SUFFIXES
from gradwire.recipe.load import LoadedRecipe, load_recipe
from gradwire.targets.job import Job, LaunchFacts

_MAX_PLAN_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """What was named: `recipe` or `job` is set, and `plan` where a lowered folder holds the plan that it came from."""

    name: str
    recipe: LoadedRecipe | None = None
    job: Job | None = None
    plan: Plan | None = None


def read_side(name: str, *, facts: LaunchFacts, trainer_arguments: Path | None = None) -> Side:
    """Return what `name` is: a preset, a recipe's file, a configuration file, or a folder of lowered files.

    Raises UsageError, InvalidRecipe among it, where there is nothing to compare.
    """
    path = Path(name)
    if path.is_dir():
        return _folder(path, facts)
    if not name.endswith((*SUFFIXES, ".hjson")) or path.suffix == ".toml":
        return Side(name=name, recipe=load_recipe(name))
    # The name of a preset is enough to know that nothing of these is needed.
    from gradwire.targets.grouping import one_job
    from gradwire.targets.loading import Unreadable, load_document

    loaded = load_document(path)
    # What is no readable mapping is a recipe's to complain of where it is YAML, a configuration's where it is JSON.
    if isinstance(loaded, Unreadable) and (loaded.is_recipe or (path.suffix in (".yaml", ".yml") and path.is_file())):
        return Side(name=name, recipe=load_recipe(name))
    return Side(name=name, job=one_job([path], facts=facts, trainer_arguments=trainer_arguments))


def _folder(folder: Path, facts: LaunchFacts) -> Side:
    files = [folder / name for name in (ACCELERATE_FILE, DEEPSPEED_FILE, TRAINER_FILE) if (folder / name).is_file()]
    if not files:
        raise UsageError(f"{folder}: holds no {ACCELERATE_FILE}, {DEEPSPEED_FILE} or {TRAINER_FILE}; name a file")
    from gradwire.targets.grouping import one_job

    plan = _plan(folder / PLAN_FILE)
    known = facts
    if plan is not None and facts.num_processes is None:
        known = LaunchFacts(
            num_processes=plan.batch.data_parallel_size,
            num_machines=plan.world.num_nodes,
            mixed_precision=facts.mixed_precision,
            hidden_size=facts.hidden_size,
        )
    return Side(name=str(folder), job=one_job(files, facts=known), plan=plan)


def _plan(path: Path) -> Plan | None:
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(read_text(path, max_bytes=_MAX_PLAN_BYTES, what="a plan"), type=Plan)
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: is no plan that was generated: {error}") from None
