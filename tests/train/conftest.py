"""A plan, and a process group of one rank in this process, for what training's parts need of both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch.distributed as dist

from gradwire.documents.plan_schema import Plan
from gradwire.plan import settle
from gradwire.recipe import load_recipe, parse_set


@pytest.fixture
def plan() -> Iterator[Plan]:
    """The plan of cpu/ddp on one process, whose process group stands."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    loaded = load_recipe("cpu/ddp", overrides=[parse_set("training.num_gpus=1")])
    yield settle(loaded.recipe, recipe_name=loaded.name, backend="native", device="cpu")
    dist.destroy_process_group()
