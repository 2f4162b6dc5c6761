"""Finds where the files of two sides differ in what the programs end up with, and what each value rests on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gradwire.differences.difference import About, Difference, Value
from gradwire.differences.sides import Side
from gradwire.differences.tracing import traced
from gradwire.errors import UsageError
from gradwire.importing.lowered import Target, lower_for, read_lowered, trainer_values
from gradwire.importing.reading_job import ReadJob, read_job
from gradwire.importing.trainer_table import TRAINER_DEFAULTS
from gradwire.plan import Backend
from gradwire.recipe.load import LoadedRecipe
from gradwire.targets.accelerate_effective import accelerate_default
from gradwire.targets.comparable import Default, comparable_deepspeed, differing
from gradwire.targets.deepspeed_activity import idle_reason
from gradwire.targets.deepspeed_effective import default_of
from gradwire.targets.effective import Effective
from gradwire.targets.job import Job

# What each machine or folder says for itself.
_PLACES = ("machine_rank", "main_process_ip", "main_process_port", "deepspeed_config.deepspeed_config_file")
_SIZES = ("num_processes", "num_machines", "distributed_type", "mixed_precision")
_PROGRAMS = ("optimizer.", "scheduler.", "zero_force_ds_cpu_optimizer")


def differences_of_values(a: Side, b: Side) -> list[Difference]:
    """Return where two sides, of which at most one is a recipe, differ by the values that the backends end up with.

    A recipe is lowered for the other side's backend and processes. Raises UsageError where the sides have nothing in
    common, or a program refuses a file.
    """
    one, other = _values(a, b), _values(b, a)
    found = []
    for about, default in _DEFAULTS.items():
        left, right = one.get(about), other.get(about)
        if left is not None and right is not None:
            found += list(_of_values(about, left, right, default))
    if not one.keys() & other.keys():
        raise UsageError(
            f"{a.name} and {b.name} have nothing in common: one is for {' and '.join(one)}, the other for "
            f"{' and '.join(other)}"
        )
    return found


def _trainer_default(path: str, values: Mapping[str, Effective]) -> Any:
    return TRAINER_DEFAULTS.get(path)


_DEFAULTS: dict[About, Default] = {
    "deepspeed": default_of,
    "accelerate": accelerate_default,
    "trainer": _trainer_default,
}
# Folders and names, which differ between any two runs.
_NAMES = ("deepspeed", "output_dir", "logging_dir", "run_name")


def _values(side: Side, other: Side) -> dict[About, Mapping[str, Effective]]:
    """What a side ends up with in each backend's file."""
    if side.job is not None:
        return _of_job(read_job(side.job), side.job)
    if side.recipe is None or other.job is None:
        raise UsageError(f"{side.name}: is neither a recipe nor a configuration")
    return _of_recipe(side.recipe, read_job(other.job), other)


def _of_job(read: ReadJob, job: Job) -> dict[About, Mapping[str, Effective]]:
    found: dict[About, Mapping[str, Effective]] = {}
    if read.deepspeed is not None:
        found["deepspeed"] = comparable_deepspeed(read.deepspeed, read.batch)
    if read.accelerate is not None:
        found["accelerate"] = _launched(read.accelerate.reading.values, read.accelerate.free)
    if job.trainer is not None:
        found["trainer"] = _arguments(trainer_values(job.trainer))
    return found


def _arguments(values: Mapping[str, Effective]) -> dict[str, Effective]:
    return {path: value for path, value in values.items() if path not in _NAMES}


def _launched(values: Mapping[str, Effective], free: Iterable[str]) -> dict[str, Effective]:
    """The values of an Accelerate file but for places and for `free` ones; sizes are compared, free or not."""
    skipped = {*_PLACES, *_said_elsewhere(values), *(path for path in free if path not in _SIZES)}
    return {path: value for path, value in values.items() if path not in skipped}


def _said_elsewhere(values: Mapping[str, Effective]) -> set[str]:
    """The precision under DeepSpeed, which Accelerate takes from DeepSpeed's configuration, where it is compared."""
    kind, precision = values.get("distributed_type"), values.get("mixed_precision")
    by_deepspeed = kind is not None and kind.value == "DEEPSPEED"
    return {"mixed_precision"} if by_deepspeed and (precision is None or precision.value != "fp8") else set()


def _of_recipe(loaded: LoadedRecipe, other: ReadJob, side: Side) -> dict[About, Mapping[str, Effective]]:
    """What a recipe lowers to for the backend, the device and the processes of the other side."""
    recipe = loaded.recipe
    size = side.plan.world.world_size if side.plan is not None else other.processes.world
    training = msgspec.structs.replace(recipe.training, num_gpus=size)
    recipe = msgspec.structs.replace(recipe, training=training)
    device = recipe.training.device or (side.plan.world.device if side.plan is not None else "cuda")
    target = Target(
        backend=_backend_of(other, side),
        device=device,
        num_nodes=other.processes.num_nodes,
    )
    lowered = read_lowered(lower_for(recipe, target, allow_lossy=True), recipe, target)
    found: dict[About, Mapping[str, Effective]] = {}
    if lowered.deepspeed is not None:
        found["deepspeed"] = traced(lowered.deepspeed, loaded, "deepspeed")
    if lowered.accelerate is not None:
        free = other.accelerate.free if other.accelerate is not None else ()
        found["accelerate"] = traced(_launched(lowered.accelerate, free), loaded, "accelerate")
    if lowered.trainer is not None:
        words = "what lowering the recipe writes"
        found["trainer"] = {
            path: Effective(path=path, value=value.value, origin=value.origin, note=words)
            for path, value in _arguments(lowered.trainer).items()
        }
    return found


def _backend_of(other: ReadJob, side: Side) -> Backend:
    if side.job is not None and side.job.trainer is not None:
        return "trainer"
    return "accelerate" if other.accelerate is not None else "deepspeed"


def _of_values(
    about: About, left: Mapping[str, Effective], right: Mapping[str, Effective], default: Default
) -> Iterator[Difference]:
    brings_own = about == "deepspeed" and ("optimizer.type" in left) != ("optimizer.type" in right)
    for path, (one, other) in differing(left, right, default).items():
        if brings_own and path.startswith(_PROGRAMS) and path != "optimizer.type":
            # One side's program makes the optimizer: one line says so.
            continue
        if about == "deepspeed" and any(_is_idle(path, side) for side in (left, right)):
            # What does nothing on one side differs because of another key, which is listed.
            continue
        yield Difference(about=about, path=path, a=_value(one), b=_value(other))


def _is_idle(path: str, values: Mapping[str, Effective]) -> bool:
    stage = values.get("zero_optimization.stage")
    at_path = {path: Effective(path=path, value=default_of(path, values), origin="default"), **values}
    return idle_reason(path, at_path, 0 if stage is None else int(stage.value)) is not None


def _value(effective: Effective) -> Value:
    file, line, column = effective.place or (None, None, None)
    words = effective.note or {"default": "the default", "derived": "follows from the rest"}.get(effective.origin, "")
    return Value(value=effective.value, origin=words or effective.origin, file=file, line=line, column=column)
