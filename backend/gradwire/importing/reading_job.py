"""Reads the files of one job as their programs do, and settles how many processes it has and how large its batch is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gradwire.documents.recipe_schema import Recipe
from gradwire.errors import UsageError
from gradwire.importing.accelerate_job import AccelerateJob, accelerate_job
from gradwire.importing.processes import Processes, processes_of
from gradwire.targets.accelerate_plugin import plugin_reading
from gradwire.targets.batch import Batch, NoBatch, batch_of
from gradwire.targets.deepspeed_effective import read_deepspeed
from gradwire.targets.effective import Effective, Passed, Reading
from gradwire.targets.job import Job


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadJob:
    """What the programs end up with from a job's files; None: the job has no such file, or does not use DeepSpeed."""

    accelerate: AccelerateJob | None
    deepspeed: Reading | None
    processes: Processes
    batch: Batch | None


def read_job(job: Job) -> ReadJob:
    """Return what the programs make of a job's files.

    Raises UsageError where a program itself refuses them or they do not belong together, CannotImport where the job
    is of a kind that Gradwire does not know.
    """
    accelerate = accelerate_job(job)
    deepspeed = _deepspeed_reading(job, accelerate)
    _check_accepted([*(accelerate.reading.refused if accelerate else ()), *(deepspeed.refused if deepspeed else ())])
    processes = processes_of(job, accelerate, deepspeed)
    batch = _settled_batch(deepspeed, processes)
    return ReadJob(accelerate=accelerate, deepspeed=deepspeed, processes=processes, batch=batch)


def _deepspeed_reading(job: Job, accelerate: AccelerateJob | None) -> Reading | None:
    if job.deepspeed is not None:
        return _with_total_steps(read_deepspeed(job.deepspeed, job))
    if accelerate is not None and accelerate.is_deepspeed:
        return plugin_reading(accelerate.reading)
    return None


def _with_total_steps(reading: Reading) -> Reading:
    """A schedule that falls needs the steps of the run, which the Trainer counts and a recipe says."""
    path, kind = "scheduler.params.total_num_steps", reading.value("scheduler.type")
    if path in reading.values or kind not in ("WarmupDecayLR", "WarmupCosineLR"):
        return reading
    written = next((each for each in reading.idle if each.path == path), None)
    steps = Effective(
        path=path,
        value=Recipe().training.max_steps,
        origin="assumed",
        document=written.document if written is not None else None,
        member=written.member if written is not None else None,
        note="the steps of the run are not known here; training.max_steps of the recipe",
    )
    idle = tuple(each for each in reading.idle if each is not written)
    return replace(reading, values={**reading.values, path: steps}, idle=idle)


def _check_accepted(refused: Iterable[Passed]) -> None:
    lines = []
    for each in refused:
        file, line, column = each.place
        lines.append(f"{file}:{line}:{column} {each.path}: {each.reason}")
    if lines:
        raise UsageError(
            "\n".join(["the program itself refuses this configuration", *(f"  {line}" for line in lines)])
            + "\n`gradwire lint` says how to mend it; nothing was written"
        )


def _settled_batch(deepspeed: Reading | None, processes: Processes) -> Batch | None:
    if deepspeed is None:
        return None
    found = batch_of(deepspeed, processes.world)
    if isinstance(found, NoBatch):
        source = deepspeed.values.get(found.path)
        place = f"{':'.join(map(str, source.place))} " if source is not None and source.place else ""
        raise UsageError(f"{place}{found.path}: DeepSpeed refuses to start: {found.reason}")
    return found
