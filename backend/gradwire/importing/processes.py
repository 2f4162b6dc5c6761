"""How many processes and machines an imported job has, and what of that is said when the recipe is lowered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gradwire.errors import CannotImport, UsageError
from gradwire.importing.accelerate_job import AccelerateJob
from gradwire.importing.accelerate_table import accelerate_at
from gradwire.importing.entry import Carried
from gradwire.targets.batch import MICRO, STEPS, TRAIN, ranks_that_fit
from gradwire.targets.comparable import at
from gradwire.targets.effective import Effective, Reading
from gradwire.targets.job import Job

_SPLITS = ("sequence_parallel_size", "tensor_parallel.autotp_size")


@dataclass(frozen=True, kw_only=True, slots=True)
class Processes:
    """The size of a job, each of whose processes reads data of its own.

    `launch_words` leads from a key of the Accelerate file to where its value goes and a note; `lower_options` are
    the words that `gradwire lower` needs for it.
    """

    world: int
    num_nodes: int
    carried: tuple[Carried, ...]
    launch_words: Mapping[str, tuple[str | None, str | None]]
    lower_options: tuple[str, ...]


def processes_of(job: Job, accelerate: AccelerateJob | None, deepspeed: Reading | None) -> Processes:
    """Return the size of the job; raises CannotImport where some ranks share their data, which no recipe says."""
    if deepspeed is not None:
        shared = [at(deepspeed, path) for path in _SPLITS if at(deepspeed, path).value not in (None, 0, 1)]
        if shared:
            raise CannotImport(
                [
                    f"{_place(each)}{each.path} = {each.value!r}: in a recipe every rank reads data of its own"
                    for each in shared
                ]
            )
    source = _world(job, accelerate, deepspeed)
    carried = Carried(path="training.num_gpus", value=source.value, sources=(source,))
    nodes = accelerate_at(accelerate.reading, "num_machines").value if accelerate else job.facts.num_machines
    words, options = _launch(accelerate, nodes or 1) if accelerate else ({}, ())
    if source.value % (nodes or 1):
        raise UsageError(f"{source.value} processes do not split evenly over {nodes} machines")
    return Processes(
        world=source.value, num_nodes=nodes or 1, carried=(carried,), launch_words=words, lower_options=options
    )


def _place(effective: Effective) -> str:
    return f"{':'.join(map(str, effective.place))} " if effective.place else ""


def _world(job: Job, accelerate: AccelerateJob | None, deepspeed: Reading | None) -> Effective:
    if accelerate is not None:
        written = accelerate.reading.values.get("num_processes")
        one = accelerate.kind == "NO" or (
            accelerate.kind == "MULTI_CPU" and not accelerate.reading.value("mpirun_config.mpirun_hostfile")
        )
        if one and job.facts.num_processes is None:
            note = f"distributed_type {accelerate.kind} starts one process"
            document, member = (written.document, written.member) if written is not None else (None, None)
            return Effective(
                path="num_processes", value=1, origin="derived", note=note, document=document, member=member
            )
        if written is not None and isinstance(written.value, int) and written.value > 0:
            return written
    if job.facts.num_processes is not None:
        return Effective(path="num_processes", value=job.facts.num_processes, origin="written", note="--num-processes")
    fitting = ranks_that_fit(deepspeed) if deepspeed is not None else None
    if deepspeed is not None and fitting is not None:
        written = deepspeed.values[TRAIN]
        note = f"the only number at which {TRAIN} is {MICRO} x {STEPS} x ranks"
        return Effective(
            path=TRAIN, value=fitting, origin="derived", note=note, document=written.document, member=written.member
        )
    note = "the number of processes is not known here (--num-processes)"
    return Effective(path="num_processes", value=1, origin="assumed", note=note)


def _launch(accelerate: AccelerateJob, nodes: int) -> tuple[dict[str, tuple[str | None, str | None]], tuple[str, ...]]:
    reading = accelerate.reading
    port, address = reading.value("main_process_port"), reading.value("main_process_ip")
    words: dict[str, tuple[str | None, str | None]] = {
        "compute_environment": (None, "lowering writes it"),
        "num_machines": ("--num-nodes", None),
        "machine_rank": ("--node-rank", "each machine says its own"),
        "main_process_ip": ("--rdzv", None),
        "main_process_port": ("--rdzv", None) if nodes > 1 else (None, "on one machine lowering takes a free port"),
    }
    if nodes == 1:
        return words, ()
    meeting = f"{address}:{port or 29500}" if address else "HOST:PORT"
    return words, ("--num-nodes", str(nodes), "--rdzv", meeting)
