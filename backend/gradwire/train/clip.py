"""Clips gradients by their global norm, over every shard and every pipeline stage."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.distributed.tensor import DTensor


def clip_gradients(parameters: Iterable[Any], max_norm: float, *, stage_group: Any = None) -> Any:
    """Scale the gradients so that their global 2-norm is at most `max_norm`; return the norm before, a scalar tensor.

    Gradients must be averaged already. `stage_group` is the process group over which parameters are split
    (pipeline stages); sharded gradients (DTensor) are summed over their own mesh.
    """
    owned = [parameter for parameter in parameters if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in owned])
    if isinstance(norm, DTensor):
        norm = norm.full_tensor()
    if stage_group is not None:
        square = norm.square()
        torch.distributed.all_reduce(square, group=stage_group)
        norm = square.sqrt()
    torch.nn.utils.clip_grads_with_norm_(owned, max_norm, norm)
    return norm
