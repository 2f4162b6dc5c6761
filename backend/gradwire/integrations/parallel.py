"""Says which ranks count: of those that share a batch, one."""

from __future__ import annotations

from typing import Any

SHARE_BATCH = frozenset({"tp", "tensor", "pp", "pipeline"})
"""Names of device-mesh dimensions along which each rank is given the whole batch."""
SHARE_SEQUENCE = frozenset({"cp", "context", "sp", "sequence"})
"""Names of dimensions along which ranks share a batch, each with its own slice of every sequence."""


def counts_here(mesh: Any, *, given_slices: bool = False) -> bool:
    """Return whether this rank counts: it is the first along each dimension of `mesh` along which ranks share a batch.

    `mesh` is a torch `DeviceMesh` with named dimensions (Accelerate and torchtitan name theirs), or None: every rank
    counts. Give the meter the whole batch's counts on each rank, with `counts=counts_here(mesh)`. Where a rank counts
    the tokens of its own slice of the sequences (`given_slices`), all ranks that share sequences count theirs.
    """
    shared = SHARE_BATCH if given_slices else SHARE_BATCH | SHARE_SEQUENCE
    names = getattr(mesh, "mesh_dim_names", None) or ()
    return all(mesh.get_local_rank(name) == 0 for name in names if name in shared)
