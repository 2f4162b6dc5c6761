"""Says how torchrun starts a plan's processes."""

from __future__ import annotations

from gradwire.artifact import Setting, Word
from gradwire.documents.plan_schema import Plan
from gradwire.lowering.placement import Placement, endpoint


def torchrun_words(plan: Plan, placement: Placement) -> tuple[Word, ...]:
    """Return the launcher's words before the program's."""
    world = plan.world
    if world.num_nodes == 1:
        # --standalone takes a free port, so two runs on one machine do not meet.
        return ("torchrun", "--standalone", "--nnodes", "1", "--nproc-per-node", str(world.processes_per_node))
    meeting = endpoint(placement)
    return (
        "torchrun",
        *("--nnodes", str(world.num_nodes)),
        *("--nproc-per-node", str(world.processes_per_node)),
        *("--node-rank", Setting(variable="NODE_RANK", default=str(placement.node_rank))),
        *("--master-addr", Setting(variable="MASTER_ADDR", default=meeting.host)),
        *("--master-port", Setting(variable="MASTER_PORT", default=str(meeting.port))),
    )
