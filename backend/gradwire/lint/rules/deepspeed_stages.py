"""Rules for keys that do not act where they stand: another ZeRO stage, another device, a section nobody reads."""

from __future__ import annotations

from collections.abc import Iterator

from gradwire.lint.rule import Hit, Rule, shown
from gradwire.targets.deepspeed_activity import stages_in_words
from gradwire.targets.deepspeed_readings import DEEPSPEED_CONFIG_URL, is_on, offload_device, whole, zero_stage
from gradwire.targets.job import Job
from gradwire.targets.schema import visit
from gradwire.targets.tree import Document

OFFLOAD_URL = "https://github.com/wenet-e2e/wenet/issues/2499"


def keys_of_other_stages(document: Document, job: Job) -> Iterator[Hit]:
    """Keys that act at other ZeRO stages than the one that runs."""
    stage = zero_stage(document)
    for each in visit(document):
        stages, name, value = each.says.get("x-stages"), each.member.name, each.member.node.data
        if each.section_path != "zero_optimization" or stages is None or stage in stages or name in _OFFLOADS:
            continue
        if value in (each.says.get("default"), None, False) or name == "compute_grad_norm":
            continue
        yield Hit(
            at=each.member,
            path=each.path,
            message=f"{name} acts at {stages_in_words(stages)}; this file is at stage {stage}",
            effect=f"DeepSpeed reads {shown(value)} and never uses it",
            fix=f"remove it, or set stage to {stages[-1]}",
        )


_OFFLOADS = ("offload_param", "offload_optimizer", "cpu_offload", "cpu_offload_param", "legacy_stage1")


def parameter_offload(document: Document, job: Job) -> Iterator[Hit]:
    """Parameter offload below stage 3."""
    stage = zero_stage(document)
    device = offload_device(document, "offload_param")
    member = document.member("zero_optimization.offload_param") or document.member(
        "zero_optimization.cpu_offload_param"
    )
    if member is not None and device != "none" and stage < 3:
        yield Hit(
            at=member,
            path=f"zero_optimization.{member.name}",
            message=f"parameters are offloaded at stage 3 only; this file is at stage {stage}",
            effect="nothing is offloaded: every rank keeps all parameters on its device",
            fix="set stage to 3, or remove it",
        )


def optimizer_offload(document: Document, job: Job) -> Iterator[Hit]:
    """Optimizer offload without ZeRO."""
    stage = zero_stage(document)
    device = offload_device(document, "offload_optimizer")
    member = document.member("zero_optimization.offload_optimizer") or document.member("zero_optimization.cpu_offload")
    if member is not None and device != "none" and stage == 0:
        yield Hit(
            at=member,
            path=f"zero_optimization.{member.name}",
            message="optimizer state is offloaded at stages 1 to 3; this file is at stage 0",
            effect="ZeRO is off, so its offload is too",
            fix="set stage to 1, 2 or 3, or remove it",
        )


def nvme_without_path(document: Document, job: Job) -> Iterator[Hit]:
    """NVMe offload that names no folder."""
    for section, stages in (("offload_param", (3,)), ("offload_optimizer", (1, 2, 3))):
        member = document.member(f"zero_optimization.{section}.device")
        path = document.value(f"zero_optimization.{section}.nvme_path")
        if member is None or member.node.data != "nvme" or zero_stage(document) not in stages:
            continue
        if section == "offload_optimizer" and zero_stage(document) < 3:
            yield Hit(
                at=member,
                path=f"zero_optimization.{section}.device",
                message=f"optimizer state goes to NVMe at stage 3 only; this file is at stage {zero_stage(document)}",
                effect="DeepSpeed keeps it in host memory and writes nothing to the disk",
                fix="set device to cpu, or stage to 3",
            )
        elif path in (None, "auto"):
            yield Hit(
                at=member,
                path=f"zero_optimization.{section}.device",
                message="device nvme without nvme_path",
                effect="DeepSpeed reads the file and fails when the engine starts",
                fix="add nvme_path, a folder on the NVMe disk of every machine",
                severity="error",
            )


def keys_of_other_devices(document: Document, job: Job) -> Iterator[Hit]:
    """Keys of an offload section that act for another device than the one that is written."""
    for each in visit(document):
        for neighbour, values in each.says.get("x-when", {}).items():
            written = each.siblings.get(neighbour, each.section["properties"][neighbour].get("default"))
            if written in values or each.member.node.data in (each.says.get("default"), None):
                continue
            yield Hit(
                at=each.member,
                path=each.path,
                message=f"{each.member.name} acts with {neighbour} "
                f"{' or '.join(shown(value) for value in values)} only",
                effect=f"{neighbour} is {shown(written)}, so it does nothing",
                fix=f"remove it, or change {neighbour}",
                severity="warning" if each.member.name == "nvme_path" or each.member.node.data is True else None,
            )


def idle_aio(document: Document, job: Job) -> Iterator[Hit]:
    """The aio section without anything that reads or writes through it."""
    member = document.member("aio")
    uses_disk = any(offload_device(document, section) == "nvme" for section in ("offload_param", "offload_optimizer"))
    if member is None or uses_disk or document.has("checkpoint.writer"):
        return
    if any(spec.spec is not None and spec.section_path == "aio" for spec in visit(document)):
        yield Hit(
            at=member,
            path="aio",
            message="aio is for NVMe offload and the fast checkpoint writer, and this file uses neither",
            effect="the section does nothing",
            fix="remove it, or offload to nvme",
        )


def gds_needs_cuda(document: Document, job: Job) -> Iterator[Hit]:
    """GPUDirect Storage away from CUDA."""
    member = document.member("aio.use_gds")
    if member is not None and is_on(document, "aio.use_gds"):
        yield Hit(
            at=member,
            path="aio.use_gds",
            message="use_gds needs a CUDA device and GPUDirect Storage",
            effect="on any other machine DeepSpeed refuses to start",
            fix="set it to false unless every machine of the job has both",
        )


def activation_checkpointing(document: Document, job: Job) -> Iterator[Hit]:
    """The activation_checkpointing section, which the engine does not read."""
    member = document.member("activation_checkpointing")
    switched = ("partition_activations", "cpu_checkpointing", "contiguous_memory_optimization", "profile")
    if member is not None and any(is_on(document, f"activation_checkpointing.{name}") for name in switched):
        yield Hit(
            at=member,
            path="activation_checkpointing",
            message="activation_checkpointing only configures deepspeed.checkpointing",
            effect="no activation is checkpointed unless the training script calls deepspeed.checkpointing itself",
            fix="switch checkpointing on in the model (transformers: gradient_checkpointing_enable()), "
            "or call deepspeed.checkpointing.configure",
        )


def hpz_size(document: Document, job: Job) -> Iterator[Hit]:
    """A second parameter group whose size does not divide the world."""
    member = document.member("zero_optimization.zero_hpz_partition_size")
    size = whole(member.node.data) if member else None
    world = job.num_processes
    if member is None or size is None or size < 2 or zero_stage(document) != 3 or world is None:
        return
    if size > world:
        yield Hit(
            at=member.node,
            path="zero_optimization.zero_hpz_partition_size",
            message=f"groups of {size} ranks in a world of {world}",
            effect="the group is the whole world, so no second copy saves any traffic",
            fix="use the number of devices of one machine, or 1",
            severity="warning",
        )
    elif world % size:
        yield Hit(
            at=member.node,
            path="zero_optimization.zero_hpz_partition_size",
            message=f"groups of {size} ranks do not divide {world} processes",
            effect="the second parameter group cannot be made: the job fails when the engine starts",
            fix=f"use a divisor of {world}, usually the devices of one machine",
        )


RULES = (
    Rule(
        code="DS201",
        name="key-of-another-stage",
        severity="warning",
        reads="deepspeed",
        check=keys_of_other_stages,
        summary="A ZeRO key that does not act at the stage that runs.",
        url=DEEPSPEED_CONFIG_URL + "#zero-optimizations-for-fp16-training",
    ),
    Rule(
        code="DS202",
        name="parameter-offload-below-stage-3",
        severity="error",
        reads="deepspeed",
        check=parameter_offload,
        url=OFFLOAD_URL,
        summary="Parameter offload below stage 3, which offloads nothing.",
    ),
    Rule(
        code="DS203",
        name="optimizer-offload-without-zero",
        severity="error",
        reads="deepspeed",
        check=optimizer_offload,
        summary="Optimizer offload at stage 0, which offloads nothing.",
    ),
    Rule(
        code="DS204",
        name="nvme-offload",
        severity="warning",
        reads="deepspeed",
        check=nvme_without_path,
        summary="NVMe offload that has no path, or that this stage keeps in memory.",
    ),
    Rule(
        code="DS205",
        name="key-of-another-device",
        severity="note",
        reads="deepspeed",
        check=keys_of_other_devices,
        summary="A key that acts with another value of its neighbour.",
    ),
    Rule(
        code="DS206",
        name="idle-aio",
        severity="warning",
        reads="deepspeed",
        check=idle_aio,
        summary="The aio section in a file that touches no disk.",
    ),
    Rule(
        code="DS207",
        name="gds-without-cuda",
        severity="warning",
        reads="deepspeed",
        check=gds_needs_cuda,
        summary="GPUDirect Storage, which only CUDA machines have.",
    ),
    Rule(
        code="DS208",
        name="activation-checkpointing-section",
        severity="note",
        reads="deepspeed",
        check=activation_checkpointing,
        summary="A section that acts only where the script calls deepspeed.checkpointing.",
    ),
    Rule(
        code="DS209",
        name="hpz-group",
        severity="error",
        reads="deepspeed",
        check=hpz_size,
        summary="A second parameter group that does not divide the world size.",
    ),
)
