"""Says where a lowered job runs: its output folder, this machine's rank and the meeting point of all machines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from gradwire.artifact import Setting
from gradwire.documents.plan_schema import Plan
from gradwire.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Where the artifact will lie and which machine of the job it is for.

    `out_folder` is the folder as the user gave it: a target that resolves file names against the current directory
    gets it in front of them. `rendezvous` is HOST:PORT of the first machine, needed with more than one.
    """

    out_folder: PurePath
    node_rank: int = 0
    rendezvous: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """Where the ranks of all machines meet."""

    host: str
    port: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Meeting:
    """What each machine of a job is told: its own rank, and the address and port of the first one."""

    node_rank: Setting
    address: Setting
    port: Setting


def check_placement(plan: Plan, placement: Placement) -> None:
    """Raise UsageError where `placement` does not fit the plan's machines."""
    nodes = plan.world.num_nodes
    if not 0 <= placement.node_rank < nodes:
        raise UsageError(f"--node-rank is {placement.node_rank}, but {nodes} node(s) have ranks 0 to {nodes - 1}")
    if nodes > 1:
        endpoint(placement)


def meeting(placement: Placement) -> Meeting:
    """Return the words that differ between jobs and machines; raises UsageError where there is no meeting point."""
    first = endpoint(placement)
    return Meeting(
        # So that `srun launch.sh` is the whole command on every node.
        node_rank=Setting(variable="NODE_RANK", default=str(placement.node_rank), scheduler_variable="SLURM_NODEID"),
        address=Setting(variable="MASTER_ADDR", default=first.host),
        port=Setting(variable="MASTER_PORT", default=str(first.port)),
    )


def endpoint(placement: Placement) -> Endpoint:
    """Return the meeting point of a job on several machines; raises UsageError where it is missing or malformed."""
    text = placement.rendezvous
    if text is None:
        raise UsageError("more than one node needs a meeting point: give --rdzv HOST:PORT of the first node")
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise UsageError(f"--rdzv {text!r}: expected HOST:PORT with a port from 1 to 65535, such as 10.0.0.1:29500")
    return Endpoint(host=host, port=int(port))
