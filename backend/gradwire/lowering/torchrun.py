"""Says how torchrun starts a plan's processes."""

from __future__ import annotations

from gradwire.artifact import Word
from gradwire.documents.plan_schema import Plan
from gradwire.lowering.placement import Placement, meeting


def torchrun_words(plan: Plan, placement: Placement) -> tuple[Word, ...]:
    """Return the launcher's words before the program's."""
    world = plan.world
    if world.num_nodes == 1:
        # --standalone takes a free port, so two runs on one machine do not meet.
        return ("torchrun", "--standalone", "--nnodes", "1", "--nproc-per-node", str(world.processes_per_node))
    place = meeting(placement)
    return (
        "torchrun",
        *("--nnodes", str(world.num_nodes)),
        *("--nproc-per-node", str(world.processes_per_node)),
        *("--node-rank", place.node_rank),
        *("--master-addr", place.address),
        *("--master-port", place.port),
    )
