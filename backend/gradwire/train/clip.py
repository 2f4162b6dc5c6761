"""Clips gradients by their global norm, over every shard and every pipeline stage."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from gradwire.train.stopwatch import Lap


def clip_gradients(
    parameters: Iterable[Any], max_norm: float, *, stage_group: Any = None, lap: Lap | None = None
) -> Any:
    """Scale the gradients so that their global 2-norm is at most `max_norm`; return the norm before, a scalar tensor.

    Gradients must be averaged already. `stage_group` is the process group over which parameters are split
    (pipeline stages), where waiting for the other stages is lapped as bubble; sharded gradients (DTensor) are summed
    over their own mesh.
    """
    owned = [parameter for parameter in parameters if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in owned])
    if isinstance(norm, DTensor):
        norm = norm.full_tensor()
    if stage_group is not None:
        square = norm.square()
        if lap is not None:
            lap("optimizer")
        torch.distributed.all_reduce(square, group=stage_group)
        if lap is not None:
            lap("pipeline_bubble")
        norm = square.sqrt()
    torch.nn.utils.clip_grads_with_norm_(owned, max_norm, norm)
    return norm
