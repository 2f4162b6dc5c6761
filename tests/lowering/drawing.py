"""Lowers small recipes for the tests: what each test says differs from one recipe that every backend can express."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from gradwire.artifact import Artifact
from gradwire.documents.plan_schema import Plan
from gradwire.documents.recipe_schema import Model, Recipe
from gradwire.lowering import Placement, lower
from gradwire.lowering.fields import with_values
from gradwire.plan import Backend, Device, settle

MODEL = Model(family="gpt2", hidden_size=32, layers=2, attention_heads=2, sequence_length=16)

STRATEGY = "parallelism.data.strategy"
METHOD = "communication.compression.method"


def recipe(values: dict[str, Any] | None = None) -> Recipe:
    """A recipe for two processes with `values`, by dotted path, on top of the defaults."""
    return with_values(Recipe(model=MODEL), {"training.num_gpus": 2, **(values or {})})


def plan(
    backend: Backend, values: dict[str, Any] | None = None, *, device: Device = "cuda", num_nodes: int = 1
) -> Plan:
    """The settled recipe."""
    return settle(recipe(values), recipe_name="drawn", backend=backend, device=device, num_nodes=num_nodes)


def lowered(
    backend: Backend,
    values: dict[str, Any] | None = None,
    *,
    device: Device = "cuda",
    num_nodes: int = 1,
    node_rank: int = 0,
    out: str = "out",
    program: tuple[str, ...] | None = None,
    allow_lossy: bool = False,
) -> Artifact:
    """The artifact of the settled recipe."""
    rendezvous = "10.0.0.1:29400" if num_nodes > 1 else None
    placement = Placement(out_folder=PurePath(out), node_rank=node_rank, rendezvous=rendezvous)
    settled = plan(backend, values, device=device, num_nodes=num_nodes)
    return lower(settled, placement=placement, program=program, allow_lossy=allow_lossy)
