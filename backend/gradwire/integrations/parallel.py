"""Says which ranks count: of those that share a batch, one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gradwire.errors import UsageError

SHARE_BATCH = frozenset({"tp", "tensor", "tensor_parallel", "mp", "model", "pp", "pipeline", "pipeline_parallel"})
"""Names of device-mesh dimensions along which each rank is given the whole batch."""
SHARE_SEQUENCE = frozenset({"cp", "context", "context_parallel", "sp", "sequence", "sequence_parallel"})
"""Names of dimensions along which ranks share a batch, each with its own slice of every sequence."""


def counts_here(mesh: Any, *, given_slices: bool = False, shares_batch: Iterable[str] = ()) -> bool:
    """Return whether this rank counts: it is the first along each dimension of `mesh` along which ranks share a batch.

    `mesh` is a torch `DeviceMesh` with named dimensions (Accelerate and torchtitan name theirs), or None: every rank
    counts. `shares_batch` names further dimensions of that kind, beside SHARE_BATCH and SHARE_SEQUENCE. Give the meter
    the whole batch's counts on each rank, with `counts=counts_here(mesh)`. Where a rank counts the tokens of its own
    slice of the sequences (`given_slices`), all ranks that share sequences count theirs.

    Raises UsageError for a mesh of several ranks without names, which says nothing of who shares a batch, and for a
    name that the mesh does not have.
    """
    if mesh is None:
        return True
    names = mesh.mesh_dim_names or ()
    if not names and mesh.size() > 1:
        raise UsageError(
            f"{mesh}: its dimensions have no names, so it does not say which ranks share a batch; give "
            'init_device_mesh their names, as in mesh_dim_names=("dp", "tp")'
        )
    own = set(shares_batch)
    unknown = sorted(own.difference(names))
    if unknown:
        raise UsageError(f"the mesh has no dimension {', '.join(unknown)}; its dimensions are {', '.join(names)}")
    shared = SHARE_BATCH | own if given_slices else SHARE_BATCH | SHARE_SEQUENCE | own
    return all(mesh.get_local_rank(name) == 0 for name in names if name in shared)


def parameters_count_here(parameters: Sequence[Any], *, is_sharded_data: bool, given_slices: bool = False) -> bool:
    """Return whether this rank counts, by the meshes that a model's parameters lie on: all of them, for they differ.

    A mesh without names is of tensor parallelism where it splits a parameter, unless FSDP, which needs no names, does
    that (`is_sharded_data`).
    """
    meshes = {parameter.device_mesh for parameter in parameters if hasattr(parameter, "device_mesh")}
    named = [mesh for mesh in meshes if mesh.mesh_dim_names]
    splitting = {
        parameter.device_mesh
        for parameter in parameters
        if hasattr(parameter, "device_mesh") and any(each.is_shard() for each in parameter.placements)
    }
    unnamed = [] if is_sharded_data else [mesh for mesh in splitting if not mesh.mesh_dim_names]
    return all(counts_here(mesh, given_slices=given_slices) for mesh in named) and all(
        place == 0 for mesh in unnamed for place in mesh.get_coordinate() or ()
    )
