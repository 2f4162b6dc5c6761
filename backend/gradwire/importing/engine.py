"""Turns the files of one job into a recipe that lowers back to what they end up with, every key accounted for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gradwire.errors import CannotImport, CannotLower
from gradwire.importing.accelerate_job import AccelerateJob
from gradwire.importing.accelerate_table import carry_accelerate
from gradwire.importing.account import account
from gradwire.importing.assumptions import assumptions_of
from gradwire.importing.deepspeed_table import OPTIMIZERS, carry_deepspeed
from gradwire.importing.entry import Assumption, Carried, Entry
from gradwire.importing.keeping import Kept, Values, Wanted
from gradwire.importing.lowered import Target, lower_for, recipe_of
from gradwire.importing.processes import Processes
from gradwire.importing.reading_job import read_job
from gradwire.importing.settling import fitting_schedule, nearest_schedule, settled, values_of, with_schedule
from gradwire.importing.sharding_table import carry_fsdp
from gradwire.importing.trainer_table import carry_trainer
from gradwire.plan import Backend
from gradwire.targets.batch import Batch
from gradwire.targets.comparable import comparable_deepspeed, optimizer_kind
from gradwire.targets.deepspeed_effective import default_of
from gradwire.targets.effective import Reading
from gradwire.targets.equality import same
from gradwire.targets.job import Job


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """A recipe's values by path, what became of every key, what no file settles, and how it is lowered.

    `lower_options` are the words after `gradwire lower RECIPE`.
    """

    values: Values
    entries: tuple[Entry, ...]
    assumptions: tuple[Assumption, ...]
    carried: tuple[Carried, ...]
    kept: tuple[Kept, ...]
    lower_options: tuple[str, ...]
    sources: tuple[str, ...]


def import_job(job: Job, *, allow_lossy: bool = False) -> Imported:
    """Return the recipe of a job's files.

    Raises UsageError where the program itself refuses the files or they do not belong together, CannotImport with
    every key that a recipe cannot say; with `allow_lossy` those are left out, and the entries say so.
    """
    read = read_job(job)
    accelerate, deepspeed, processes, batch = read.accelerate, read.deepspeed, read.processes, read.batch
    carried = [*_carried(job, accelerate, deepspeed, batch, processes), *processes.carried]
    target = _target(job, accelerate, values_of(carried), processes)
    schedule = fitting_schedule(deepspeed, batch, carried, target)
    carried = with_schedule(carried, schedule)
    wanted = tuple(_wanted(job, accelerate, deepspeed, batch, target, carried))
    carried, values, kept = settled(carried, wanted, target)
    kept = [*map(_of_an_optimizer, kept), *_lost_optimizer_keys(deepspeed, target, carried)]
    if any(_is_lost_scheduler(each) for each in kept):
        nearest = nearest_schedule(deepspeed, batch, carried, target)
        kept = [_explained(each, nearest) for each in kept]
        carried = with_schedule(carried, nearest)
        values = {**values, **values_of(nearest)}
    readings = [each for each in (deepspeed, accelerate.reading if accelerate else None) if each is not None]
    entries = account(job, readings, carried, kept, processes.launch_words)
    refused = [each for each in entries if each.outcome == "refused"]
    if refused and not allow_lossy:
        raise CannotImport([_refusal_text(each) for each in refused])
    return Imported(
        values=values,
        entries=entries,
        assumptions=assumptions_of(carried, kept),
        carried=tuple(carried),
        kept=tuple(kept),
        lower_options=(
            *("--backend", _named_backend(job, values, target)),
            # The kind of device for which the recipe comes to the same; a recipe that names it needs no word.
            *(() if ("training", "device") in values else ("--device", target.device)),
            *processes.lower_options,
        ),
        sources=tuple(document.source for document in (job.accelerate, job.deepspeed, job.trainer) if document),
    )


def _named_backend(job: Job, values: Values, target: Target) -> Backend:
    """The backend to lower to: the Trainer's own where its arguments were given and it can say the recipe."""
    if job.trainer is None:
        return target.backend
    try:
        lower_for(recipe_of(values), replace(target, backend="trainer"))
    except CannotLower:
        return target.backend
    return "trainer"


def _carried(
    job: Job,
    accelerate: AccelerateJob | None,
    deepspeed: Reading | None,
    batch: Batch | None,
    processes: Processes,
) -> Iterable[Carried]:
    if deepspeed is not None and batch is not None:
        yield from carry_deepspeed(deepspeed, batch)
    if accelerate is not None:
        yield from carry_accelerate(accelerate.reading, is_deepspeed=deepspeed is not None)
        if accelerate.kind == "FSDP":
            yield from carry_fsdp(accelerate.reading, num_processes=processes.world, num_nodes=processes.num_nodes)
    yield from carry_trainer(job, deepspeed)


def _target(job: Job, accelerate: AccelerateJob | None, values: Values, processes: Processes) -> Target:
    backend: Backend = "accelerate" if accelerate is not None else "deepspeed" if job.deepspeed else "native"
    device = values.get(("training", "device"), "cuda")
    return Target(backend=backend, device=device, num_nodes=processes.num_nodes)


def _wanted(
    job: Job,
    accelerate: AccelerateJob | None,
    deepspeed: Reading | None,
    batch: Batch | None,
    target: Target,
    carried: Iterable[Carried],
) -> Iterable[Wanted]:
    if deepspeed is not None:
        is_scheduled = any(each.path == "training.scheduler.type" for each in carried)
        free = _free_of_deepspeed(deepspeed, target, is_scheduled=is_scheduled)
        yield Wanted(section="deepspeed", values=comparable_deepspeed(deepspeed, batch), free=free)
    if accelerate is not None:
        # Beside the Trainer's arguments, which win, the file need not compile the same.
        compiles = ("dynamo_config",) if job.trainer is not None else ()
        yield Wanted(section="accelerate", values=accelerate.reading.values, free=(*accelerate.free, *compiles))


def _free_of_deepspeed(deepspeed: Reading, target: Target, *, is_scheduled: bool) -> tuple[str, ...]:
    """Return the sections of DeepSpeed's configuration that a lowered recipe need not have the same."""
    free = []
    if target.backend == "accelerate" or "optimizer.type" not in deepspeed.values:
        # The program makes the optimizer, from the recipe where that says which.
        free.append("optimizer")
        free += ["scheduler"] if is_scheduled else []
        free += ["zero_force_ds_cpu_optimizer"] if target.backend == "accelerate" else []
    elif optimizer_kind(deepspeed) not in OPTIMIZERS:
        free.append("optimizer.params")
    if is_scheduled and "scheduler.type" not in deepspeed.values:
        # The Trainer makes the schedule, from its arguments.
        free += ["scheduler", "optimizer.params.lr"]
    if deepspeed.value("zero_optimization.stage", 0) == 0:
        # Autocast takes the place of DeepSpeed's own 16-bit modes, which are refused by their own names.
        free += ["torch_autocast"] if _is_half(deepspeed) else []
    return tuple(free)


_NO_SUCH_OPTIMIZER = f"a recipe has no such key, and its optimizers are {', '.join(OPTIMIZERS)}"


def _of_an_optimizer(kept: Kept) -> Kept:
    """Say of an optimizer that is refused what a recipe has instead."""
    is_named = kept.effective.path == "optimizer.type" and kept.refused is not None
    return replace(kept, refused=_NO_SUCH_OPTIMIZER) if is_named else kept


def _lost_optimizer_keys(deepspeed: Reading | None, target: Target, carried: Iterable[Carried]) -> list[Kept]:
    """Return the refusals of the optimizer's keys that a program which makes it from the recipe does not get."""
    if deepspeed is None or "optimizer.type" not in deepspeed.values:
        return []
    if target.backend != "accelerate" and optimizer_kind(deepspeed) in OPTIMIZERS:
        return []
    said = {source.path for each in carried for source in each.sources}
    return [
        Kept(section="deepspeed", effective=effective, refused=_NO_SUCH_OPTIMIZER)
        for path, effective in deepspeed.values.items()
        if path.startswith("optimizer.") and path not in said
        if path != "optimizer.type" or target.backend == "accelerate"
        if not same(effective.value, default_of(path, deepspeed.values))
    ]


def _is_lost_scheduler(kept: Kept) -> bool:
    return kept.refused is not None and kept.section == "deepspeed" and kept.effective.path.startswith("scheduler.")


def _explained(kept: Kept, nearest: Sequence[Carried]) -> Kept:
    """Return a refused key of the scheduler with what a recipe has instead; any other as it is."""
    if not _is_lost_scheduler(kept):
        return kept
    if kept.effective.path != "scheduler.type":
        return replace(kept, refused="as scheduler.type")
    words = ", ".join(f"{each.path}: {each.value}" for each in nearest) or "training.scheduler.type: constant"
    return replace(
        kept,
        refused="here the program moves the learning rate, as training.scheduler says, which has no warm-up by the "
        f"logarithm and is never a step late; the nearest, which --allow-lossy takes: {words}",
    )


def _is_half(deepspeed: Reading) -> bool:
    return bool(deepspeed.value("fp16.enabled") or deepspeed.value("bf16.enabled"))


def _refusal_text(entry: Entry) -> str:
    place = f"{entry.file}:{entry.line}:{entry.column} " if entry.file else ""
    return f"{place}{entry.path} = {entry.value!r}: {entry.note}"
