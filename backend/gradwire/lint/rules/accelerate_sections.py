"""Rules for sections of an Accelerate file that do not act, or that stop what it starts."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from gradwire.lint.rule import Hit, Rule
from gradwire.lint.rules.accelerate_launch import SEVERAL_GPUS, distributed_type, is_local, number_of
from gradwire.targets.deepspeed_readings import whole
from gradwire.targets.job import Job
from gradwire.targets.schema import root_section, section_of, value_of
from gradwire.targets.tree import Document

MESH_URL = "https://github.com/pytorch/torchtitan/issues/1184"
_SIZES = ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size", "sp_size")


def idle_sections(document: Document, job: Job) -> Iterator[Hit]:
    """Sections that are not read under this distributed_type."""
    kind = distributed_type(document)
    if not is_local(document):
        return
    for name, member in (document.root.members or {}).items():
        spec = root_section(document)["properties"].get(name)
        section = section_of("accelerate", spec) if spec else None
        value = member.node.data
        if (
            section is None
            or not value
            or kind in section.get("x-distributed-type", [kind])
            or kind not in _all_types(document)
        ):
            continue
        if name == "dynamo_config" and str(value_of(document, name, "dynamo_backend", "NO")).upper() in ("NO", "FALSE"):
            continue
        if name == "mpirun_config" and not document.value("mpirun_config.mpirun_hostfile"):
            continue
        runs = {
            "deepspeed_config": "plain DDP, without ZeRO",
            "fsdp_config": "plain DDP, without sharding",
            "dynamo_config": "without torch.compile",
        }
        yield Hit(
            at=member,
            path=name,
            message=f"{name} is not read under distributed_type {kind}",
            effect=f"the job runs {runs[name]}"
            if (name in runs and kind in SEVERAL_GPUS) or name == "dynamo_config"
            else "it does nothing",
            fix=_section_fix(name, section["x-distributed-type"]),
            severity="warning" if kind == "NO" and name != "dynamo_config" else None,
        )


def _section_fix(name: str, kinds: list[str]) -> str:
    if name == "dynamo_config":
        return "export ACCELERATE_DYNAMO_BACKEND and the like, or compile in the training script"
    return f"set distributed_type to {kinds[0]}, or remove it"


def _all_types(document: Document) -> list[str]:
    kinds: list[str] = root_section(document)["properties"]["distributed_type"]["enum"]
    return kinds


def idle_fp8(document: Document, job: Job) -> Iterator[Hit]:
    """fp8 settings without fp8."""
    member = document.member("fp8_config")
    if member is not None and member.node.data and job.mixed_precision != "fp8" and is_local(document):
        yield Hit(
            at=member,
            path="fp8_config",
            message=f"fp8_config with mixed_precision {job.mixed_precision or 'no'}",
            effect="nothing is computed in fp8",
            fix="set mixed_precision to fp8, or remove it",
        )


def mesh_sizes(document: Document, job: Job) -> Iterator[Hit]:
    """A device mesh whose product is not the number of processes, or that Accelerate does not build."""
    member = document.member("parallelism_config")
    sizes = {name: whole(document.value(f"parallelism_config.parallelism_config_{name}", 1)) for name in _SIZES}
    if member is None or not member.node.data or None in sizes.values() or not is_local(document):
        return
    counts = {name: size for name, size in sizes.items() if size is not None}
    total, processes = prod(counts.values()), number_of(job, document, "num_processes")
    written = " x ".join(f"{name} {size}" for name, size in counts.items() if size != 1) or "all sizes 1"
    message: str | None = None
    if counts["cp_size"] > 1 and counts["sp_size"] > 1:
        message, fix = "context and sequence parallelism exclude each other", "set cp_size or sp_size to 1"
    elif (
        (counts["tp_size"] > 1 or counts["cp_size"] > 1)
        and counts["dp_replicate_size"] > 1
        and counts["dp_shard_size"] == 1
    ):
        message, fix = (
            "tensor or context parallelism with copies needs dp_shard_size above 1",
            "set dp_shard_size above 1, or dp_replicate_size to 1",
        )
    elif processes is not None and counts["sp_size"] == 1 and total > 1 and total != processes:
        message, fix = (
            f"{written} needs {total} processes, and num_processes is {processes}",
            f"change the sizes, or start {total} processes",
        )
    elif (
        distributed_type(document) == "FSDP"
        and str(value_of(document, "fsdp_config", "fsdp_version", 1)) == "1"
        and total > 1
    ):
        message, fix = "parallelism_config needs FSDP version 2", "set fsdp_version to 2"
    elif distributed_type(document) == "FSDP" and counts["dp_shard_size"] == counts["cp_size"] == 1 and total > 1:
        message, fix = "the mesh has no dimension that FSDP shards over", "set dp_shard_size above 1"
    if message:
        yield Hit(at=member, path="parallelism_config", message=message, effect="Accelerate refuses to start", fix=fix)


RULES = (
    Rule(
        code="AC207",
        name="idle-section",
        severity="error",
        reads="accelerate",
        check=idle_sections,
        summary="A section that this distributed_type does not read.",
    ),
    Rule(
        code="AC208",
        name="idle-fp8",
        severity="warning",
        reads="accelerate",
        check=idle_fp8,
        summary="fp8 settings without fp8.",
    ),
    Rule(
        code="AC209",
        name="mesh",
        severity="error",
        reads="accelerate",
        check=mesh_sizes,
        url=MESH_URL,
        summary="A device mesh that does not go with the number of processes.",
    ),
)
