"""Rules for what accelerate launch hands on to the processes, or to the program that starts them."""

from __future__ import annotations

from collections.abc import Iterator

from gradwire.lint.rule import Hit, Rule, shown
from gradwire.lint.rules.accelerate_launch import SEVERAL_GPUS, distributed_type, is_local
from gradwire.targets.deepspeed_readings import whole
from gradwire.targets.job import Job
from gradwire.targets.tree import Document

SECTION = "deepspeed_config"


def cpu_not_passed_on(document: Document, job: Job) -> Iterator[Hit]:
    """use_cpu under a type whose launcher does not tell the processes."""
    member, kind = document.member("use_cpu"), distributed_type(document)
    if member is None or member.node.data is not True or not is_local(document):
        return
    if kind in (*SEVERAL_GPUS, "FSDP", "DEEPSPEED"):
        yield Hit(
            at=member,
            path="use_cpu",
            message=f"use_cpu is not passed on to the processes under distributed_type {kind}",
            effect="they train on the devices that they find; on a machine without one each trains alone, and exits 0",
            fix="start with ACCELERATE_USE_CPU=true in the environment"
            + ("" if kind in SEVERAL_GPUS else ", with which it is plain DDP"),
        )


def no_hostfile(document: Document, job: Job) -> Iterator[Hit]:
    """Several machines through DeepSpeed's launcher, and no file that names them."""
    machines = job.facts.num_machines if job.facts.num_machines is not None else whole(document.value("num_machines"))
    launcher = document.value(f"{SECTION}.deepspeed_multinode_launcher", "pdsh")
    if distributed_type(document) != "DEEPSPEED" or machines is None or machines < 2 or launcher == "standard":
        return
    if document.value(f"{SECTION}.deepspeed_hostfile") is None:
        yield Hit(
            at=document.member("num_machines") or document.member(SECTION) or document.root,
            path=f"{SECTION}.deepspeed_hostfile",
            message=f"{machines} machines through DeepSpeed's launcher {shown(launcher)}, and no deepspeed_hostfile",
            effect='DeepSpeed looks for a file named "None", finds none and starts this machine alone',
            fix="add deepspeed_hostfile, or set deepspeed_multinode_launcher to standard and start every machine",
        )


def idle_compile_keys(document: Document, job: Job) -> Iterator[Hit]:
    """How to compile, where nothing is compiled, and a mode of inductor's for another compiler."""
    section = document.member("dynamo_config")
    if section is None or not section.node.members or not is_local(document):
        return
    given = {name.removeprefix("dynamo_"): member for name, member in section.node.members.items()}
    backend = given.pop("backend", None)
    compiler = "NO" if backend is None or backend.node.data is False else str(backend.node.data).upper()
    if distributed_type(document) == "DEEPSPEED":
        return
    for name, member in given.items():
        asked = member.node.data not in (False, None, "default") and str(member.node.data).lower() != "false"
        if asked and compiler == "NO":
            effect, fix = "nothing is compiled", "add dynamo_backend: INDUCTOR, or remove it"
        elif asked and name == "mode" and compiler in ("EAGER", "AOT_EAGER", "CUDAGRAPHS"):
            effect, fix = f"{compiler.lower()} warns of the mode and ignores it", "set dynamo_backend to INDUCTOR"
        else:
            continue
        yield Hit(
            at=member,
            path=f"dynamo_config.{member.name}",
            message=f"{member.name} is {shown(member.node.data)}, and dynamo_backend {compiler}",
            effect=effect,
            fix=fix,
        )


def no_sagemaker(document: Document, job: Job) -> Iterator[Hit]:
    """A file for SageMaker, which these versions launch nothing with."""
    if is_local(document):
        return
    member = document.member("distributed_type")
    refused = member is not None and member.node.data == "NO"
    yield Hit(
        at=member.node if refused and member is not None else document.member("compute_environment") or document.root,
        path="distributed_type" if refused else "compute_environment",
        message=f"accelerate {job.versions.accelerate} launches nothing on SageMaker",
        effect="the loader adds num_processes: 1 to this file and then refuses it as an unknown key"
        if refused
        else "accelerate launch ends in a traceback: 'SageMakerConfig' object has no attribute 'parallelism_config'",
        fix="start the job with SageMaker's own SDK, or launch with accelerate 1.10 or older",
    )


RULES = (
    Rule(
        code="AC213",
        name="no-sagemaker",
        severity="error",
        reads="accelerate",
        check=no_sagemaker,
        since="1.11.0",
        url="https://github.com/huggingface/accelerate/pull/3837",
        summary="A file for SageMaker, with which the launcher ends in an error whatever it says.",
    ),
    Rule(
        code="AC212",
        name="idle-compile-key",
        severity="warning",
        reads="accelerate",
        check=idle_compile_keys,
        summary="A key of dynamo_config that does nothing beside this dynamo_backend.",
    ),
    Rule(
        code="AC210",
        name="cpu-not-passed-on",
        severity="warning",
        reads="accelerate",
        check=cpu_not_passed_on,
        summary="use_cpu under a type whose launcher does not pass it on.",
    ),
    Rule(
        code="AC211",
        name="no-hostfile",
        severity="error",
        reads="accelerate",
        check=no_hostfile,
        summary="Several machines through DeepSpeed's launcher without a hostfile.",
    ),
)
