"""Says what kind of job an Accelerate file starts, and checks that the other files belong to it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gradwire.errors import CannotImport, UsageError
from gradwire.targets.accelerate_effective import accelerate_spec, read_accelerate
from gradwire.targets.comparable import at
from gradwire.targets.deepspeed_effective import read_deepspeed
from gradwire.targets.effective import Effective, Reading
from gradwire.targets.job import Job

_KNOWN = ("NO", "MULTI_GPU", "MULTI_CPU", "FSDP", "DEEPSPEED")
_INIT_FLAG = "deepspeed_config.zero3_init_flag"

# What the launch or the backend decides when a recipe is lowered, not a key of the recipe.
_OF_THE_LAUNCH = (
    "compute_environment",
    "distributed_type",
    "num_processes",
    "num_machines",
    "machine_rank",
    "main_process_ip",
    "main_process_port",
    "use_cpu",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class AccelerateJob:
    """An Accelerate file as it is read; `free` are its keys that a lowered recipe need not have the same."""

    reading: Reading
    kind: str
    free: tuple[str, ...]

    @property
    def is_deepspeed(self) -> bool:
        """Whether DeepSpeed trains."""
        return self.kind == "DEEPSPEED"


def accelerate_job(job: Job) -> AccelerateJob | None:
    """Return how a job's Accelerate file is read; None: it has none.

    Raises UsageError where the files do not belong together, CannotImport where no recipe has such a job.
    """
    document = job.accelerate
    if document is None:
        return None
    reading = read_accelerate(document, job)
    kind = reading.value("distributed_type")
    if kind is None and not reading.refused:
        raise UsageError(f"{document.source}: distributed_type is not written, and accelerate launch refuses that")
    if document.value("compute_environment") == "AMAZON_SAGEMAKER":
        raise CannotImport([f"{document.source} compute_environment: a recipe runs on machines of your own"])
    if kind not in _KNOWN and not reading.refused:
        raise CannotImport(
            [f"{document.source} distributed_type = {kind!r}: a recipe knows {', '.join(_KNOWN)} of these types"]
        )
    _check_files(job, reading, str(kind))
    if kind == "DEEPSPEED":
        reading = _with_init_flag(job, reading)
    return AccelerateJob(reading=reading, kind=str(kind), free=_free(reading, str(kind)))


def _check_files(job: Job, reading: Reading, kind: str) -> None:
    document = job.accelerate
    source = document.source if document is not None else ""
    named = reading.value("deepspeed_config.deepspeed_config_file")
    is_named = isinstance(named, str) and named not in ("", "none")
    if kind == "DEEPSPEED" and is_named and job.deepspeed is None:
        raise UsageError(
            f"{source} deepspeed_config.deepspeed_config_file: it names {named}, which is not beside it or in the "
            "working folder; give that file too"
        )
    if kind != "DEEPSPEED" and job.deepspeed is not None and job.trainer is None:
        raise UsageError(
            f"{job.deepspeed.source} is not read: {source} starts distributed_type {kind}; "
            "import one of the two, or set distributed_type to DEEPSPEED"
        )


def _with_init_flag(job: Job, reading: Reading) -> Reading:
    """The flag is false below stage 3, whatever the file says, and true there where it says nothing."""
    if job.deepspeed is not None:
        stage = at(read_deepspeed(job.deepspeed, job), "zero_optimization.stage").value
    else:
        stage = reading.value("deepspeed_config.zero_stage", 2)
    written = reading.values.get(_INIT_FLAG)
    values = dict(reading.values)
    if written is None:
        values[_INIT_FLAG] = Effective(path=_INIT_FLAG, value=stage == 3, origin="default", note="Accelerate's default")
    elif stage != 3:
        note = "Accelerate sets it to false below stage 3" if written.value else None
        values[_INIT_FLAG] = replace(written, value=False, note=note)
    return replace(reading, values=values)


def _free(reading: Reading, kind: str) -> tuple[str, ...]:
    free = list(_OF_THE_LAUNCH)
    if reading.value("gpu_ids") in (None, "all"):
        free.append("gpu_ids")
    if kind == "DEEPSPEED":
        in_file = [path for path in reading.values if (accelerate_spec(path) or {}).get("x-in-file")]
        free += [*in_file, "mixed_precision", "deepspeed_config.deepspeed_config_file"]
        if reading.value("num_machines", 1) <= 1:
            free.append("deepspeed_config.deepspeed_multinode_launcher")
    if kind == "FSDP":
        # The program recomputes activations, as the recipe says.
        free.append("fsdp_config.fsdp_activation_checkpointing")
    if reading.value("num_machines", 1) <= 1:
        free += ["rdzv_backend", "same_network"]
    return tuple(free)
