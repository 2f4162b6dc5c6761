"""Rules for what an Accelerate file starts: how many processes, on which machines and devices."""

from __future__ import annotations

from collections.abc import Iterator

from gradwire.lint.rule import Hit, Rule, shown
from gradwire.targets.deepspeed_readings import whole
from gradwire.targets.job import Job
from gradwire.targets.tree import Document

TOTAL_URL = "https://github.com/huggingface/accelerate/issues/2521"
SEVERAL_GPUS = (
    "MULTI_GPU",
    "MULTI_NPU",
    "MULTI_MLU",
    "MULTI_SDAA",
    "MULTI_MUSA",
    "MULTI_XPU",
    "MULTI_HPU",
    "MULTI_NEURON",
)
# Names of a machine for itself, all zeros among them.
_THIS_MACHINE = ("", "0", ".".join("0000"), "localhost", "127.0.0.1", "::1")


def distributed_type(document: Document) -> str:
    """What the file starts; NO for the boolean that YAML makes of an unquoted NO."""
    value = document.value("distributed_type")
    return value if isinstance(value, str) else "NO"


def is_local(document: Document) -> bool:
    """Whether the file is for this machine and not for SageMaker."""
    return bool(document.value("compute_environment") != "AMAZON_SAGEMAKER")


def number_of(job: Job, document: Document, name: str) -> int | None:
    """How many processes or machines there are: what the launch says, else the file, or None."""
    fact = job.facts.num_processes if name == "num_processes" else job.facts.num_machines
    return fact if fact is not None else whole(document.value(name))


def one_process_only(document: Document, job: Job) -> Iterator[Hit]:
    """Types that start one process whatever num_processes says."""
    kind, processes = distributed_type(document), number_of(job, document, "num_processes")
    member = document.member("num_processes") or document.member("distributed_type")
    if not is_local(document) or member is None or processes is None or processes < 2:
        return
    if kind == "NO" or (kind == "MULTI_CPU" and not document.value("mpirun_config.mpirun_hostfile")):
        yield Hit(
            at=member,
            path=member.name,
            message=f"distributed_type {kind} starts one process, not {processes}"
            + (" (without mpirun)" if kind == "MULTI_CPU" else ""),
            effect=f"one process trains alone and exits 0; the job has a world size of 1 instead of {processes}",
            fix="name an mpirun_config.mpirun_hostfile"
            if kind == "MULTI_CPU"
            else "use MULTI_GPU, FSDP or DEEPSPEED, or set num_processes to 1",
        )


def no_process_count(document: Document, job: Job) -> Iterator[Hit]:
    """A file that leaves the number of processes open."""
    written = document.value("num_processes")
    if not is_local(document) or job.facts.num_processes is not None or written not in (None, -1):
        return
    if distributed_type(document) != "NO":
        yield Hit(
            at=document.member("num_processes") or document.member("distributed_type") or document.root,
            path="num_processes",
            message="num_processes is not written",
            effect="accelerate launch stops and asks for --num_processes",
            fix="add num_processes, or pass --num_processes",
            severity="note" if written == -1 else "warning",
        )


def uneven_machines(document: Document, job: Job) -> Iterator[Hit]:
    """Processes that cannot be split evenly over the machines."""
    processes, machines = number_of(job, document, "num_processes"), number_of(job, document, "num_machines")
    member = document.member("num_processes") or document.member("num_machines")
    if (
        member is None
        or not is_local(document)
        or processes is None
        or machines is None
        or machines < 2
        or processes < 1
    ):
        return
    if processes % machines:
        yield Hit(
            at=member,
            path="num_processes",
            message=f"num_processes {processes} counts all machines and is no multiple of num_machines {machines}",
            effect=f"each machine starts {processes // machines}, {processes // machines * machines} in all"
            if processes > machines
            else "a machine is left without a process",
            fix=f"write num_processes {-(-processes // machines) * machines}: processes per machine x {machines}",
        )


def machine_rank(document: Document, job: Job) -> Iterator[Hit]:
    """A machine whose number is not below the number of machines."""
    member = document.member("machine_rank")
    rank = document.value("machine_rank")
    rank = int(rank) if isinstance(rank, str) and rank.isdigit() else whole(rank)
    machines = number_of(job, document, "num_machines") or 1
    if member is not None and is_local(document) and rank is not None and rank >= machines:
        yield Hit(
            at=member.node,
            path="machine_rank",
            message=f"machine_rank {rank} with num_machines {machines}; machines are numbered from 0",
            effect="the job never forms" if machines > 1 else "the number is ignored: one machine starts everything",
            fix=f"write a number below {machines}",
            severity=None if machines > 1 else "warning",
        )


def no_address(document: Document, job: Job) -> Iterator[Hit]:
    """Several machines without the address of the first."""
    machines = number_of(job, document, "num_machines")
    member = document.member("num_machines")
    if member is None or machines is None or machines < 2 or not is_local(document):
        return
    by_hosts = (
        distributed_type(document) == "DEEPSPEED"
        and document.value("deepspeed_config.deepspeed_multinode_launcher", "pdsh") != "standard"
    )
    address = document.value("main_process_ip")
    if by_hosts or (isinstance(address, str) and address.strip() not in _THIS_MACHINE):
        return
    missing = address is None
    yield Hit(
        at=member if missing else document.member("main_process_ip") or member,
        path="main_process_ip",
        message=f"num_machines {machines} "
        + ("without main_process_ip" if missing else f"with main_process_ip {shown(address)}, the machine itself"),
        effect='the machines look for a host named "None" and never meet'
        if missing
        else "every machine but the first looks for the first one on itself, and they never meet",
        fix="add main_process_ip and main_process_port, or pass them to accelerate launch"
        if missing
        else "write the address of machine 0 that the others reach",
    )


def device_count(document: Document, job: Job) -> Iterator[Hit]:
    """Fewer or more devices named than processes started."""
    member = document.member("gpu_ids")
    ids = document.value("gpu_ids")
    if member is None or not isinstance(ids, str) or ids.strip().lower() == "all" or not is_local(document):
        return
    named = [each for each in ids.split(",") if each.strip()]
    machines = number_of(job, document, "num_machines") or 1
    processes = number_of(job, document, "num_processes")
    kind = distributed_type(document)
    if kind in SEVERAL_GPUS and len(named) < 2 and machines <= 1:
        yield Hit(
            at=member.node,
            path="gpu_ids",
            message=f"{kind} with one device in gpu_ids",
            effect="accelerate launch refuses it: less than two GPU ids were configured",
            fix="name at least two devices, use all, or set distributed_type to 'NO'",
        )
    elif len(set(named)) != len(named):
        yield Hit(
            at=member.node,
            path="gpu_ids",
            message=f"gpu_ids {ids} names a device twice",
            effect="CUDA refuses the list, or two processes share a device",
            fix=f"write {','.join(dict.fromkeys(each.strip() for each in named))}",
        )
    elif processes is not None and kind not in ("NO", "MULTI_CPU", "XLA") and processes // machines > len(named):
        yield Hit(
            at=member.node,
            path="gpu_ids",
            message=f"{processes // machines} processes on this machine and {len(named)} devices in gpu_ids",
            effect="the processes without a device of their own fail: invalid device ordinal",
            fix=f"name {processes // machines} devices, or start {len(named) * machines} processes",
            severity="warning",
        )


RULES = (
    Rule(
        code="AC201",
        name="one-process",
        severity="error",
        reads="accelerate",
        check=one_process_only,
        summary="A type that starts one process whatever num_processes says.",
    ),
    Rule(
        code="AC202",
        name="no-process-count",
        severity="warning",
        reads="accelerate",
        check=no_process_count,
        summary="A file that leaves the number of processes open.",
    ),
    Rule(
        code="AC203",
        name="uneven-machines",
        severity="error",
        reads="accelerate",
        check=uneven_machines,
        url=TOTAL_URL,
        summary="Processes that do not split evenly over the machines.",
    ),
    Rule(
        code="AC204",
        name="machine-rank",
        severity="error",
        reads="accelerate",
        check=machine_rank,
        summary="A machine_rank that is not below num_machines.",
    ),
    Rule(
        code="AC205",
        name="no-address",
        severity="warning",
        reads="accelerate",
        check=no_address,
        summary="Several machines without main_process_ip.",
    ),
    Rule(
        code="AC206",
        name="devices-and-processes",
        severity="error",
        reads="accelerate",
        check=device_count,
        summary="gpu_ids that do not go with the number of processes.",
    ),
)
