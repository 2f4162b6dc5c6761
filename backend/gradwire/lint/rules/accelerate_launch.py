"""Rules for what an Accelerate file starts: how many processes, where, and which sections act."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from gradwire.lint.rule import Hit, Rule, shown
from gradwire.targets.deepspeed_readings import whole
from gradwire.targets.job import Job
from gradwire.targets.schema import root_section, section_of
from gradwire.targets.tree import Document

TOTAL_URL = "https://github.com/huggingface/accelerate/issues/2521"
MESH_URL = "https://github.com/pytorch/torchtitan/issues/1184"
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


def _number_of(job: Job, document: Document, name: str) -> int | None:
    fact = job.facts.num_processes if name == "num_processes" else job.facts.num_machines
    return fact if fact is not None else whole(document.value(name))


def one_process_only(document: Document, job: Job) -> Iterator[Hit]:
    """Types that start one process whatever num_processes says."""
    kind, processes = distributed_type(document), _number_of(job, document, "num_processes")
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
    processes, machines = _number_of(job, document, "num_processes"), _number_of(job, document, "num_machines")
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
    machines = _number_of(job, document, "num_machines") or 1
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
    machines = _number_of(job, document, "num_machines")
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
    machines = _number_of(job, document, "num_machines") or 1
    processes = _number_of(job, document, "num_processes")
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
        if name == "dynamo_config" and str(
            document.value("dynamo_config.dynamo_backend", document.value("dynamo_config.backend", "NO"))
        ).upper() in ("NO", "FALSE"):
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


_SIZES = ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size", "sp_size")


def mesh_sizes(document: Document, job: Job) -> Iterator[Hit]:
    """A device mesh whose product is not the number of processes, or that Accelerate does not build."""
    member = document.member("parallelism_config")
    sizes = {name: whole(document.value(f"parallelism_config.parallelism_config_{name}", 1)) for name in _SIZES}
    if member is None or not member.node.data or None in sizes.values() or not is_local(document):
        return
    counts = {name: size for name, size in sizes.items() if size is not None}
    total, processes = prod(counts.values()), _number_of(job, document, "num_processes")
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
        distributed_type(document) == "FSDP" and str(document.value("fsdp_config.fsdp_version", 1)) == "1" and total > 1
    ):
        message, fix = "parallelism_config needs FSDP version 2", "set fsdp_version to 2"
    elif distributed_type(document) == "FSDP" and counts["dp_shard_size"] == counts["cp_size"] == 1 and total > 1:
        message, fix = "the mesh has no dimension that FSDP shards over", "set dp_shard_size above 1"
    if message:
        yield Hit(at=member, path="parallelism_config", message=message, effect="Accelerate refuses to start", fix=fix)


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
