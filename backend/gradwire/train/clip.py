"""Clips gradients by their global norm, over every shard and every pipeline stage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from gradwire.train.stopwatch import Lap


def clip_gradients(
    parameters: Iterable[Any], max_norm: float | None, *, stage_group: Any = None, lap: Lap | None = None
) -> Any:
    """Scale the gradients so that their global 2-norm is at most `max_norm`; return the norm before, a scalar tensor.

    None: they stay as they are. Gradients must be averaged already. `stage_group` is the process group over which
    parameters are split (pipeline stages), where waiting for the other stages is lapped as bubble; sharded gradients
    (DTensor) are summed over their own mesh.
    """
    owned = [parameter for parameter in parameters if parameter.grad is not None]
    norm = gradient_norm(owned)
    if stage_group is not None:
        square = norm.square()
        if lap is not None:
            lap("optimizer")
        torch.distributed.all_reduce(square, group=stage_group)
        if lap is not None:
            lap("pipeline_bubble")
        norm = square.sqrt()
    if max_norm is not None:
        torch.nn.utils.clip_grads_with_norm_(owned, max_norm, norm)
    return norm


def gradient_norm(parameters: Sequence[Any]) -> Any:
    """Return the global 2-norm of the parameters' gradients, a scalar tensor in fp32 or wider.

    Sharded gradients count in whole: all ranks of their mesh must call it.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if any(gradient.dtype.itemsize < 4 for gradient in gradients):
        # In the gradients' own 16 bits the norm would have three digits.
        gradients = [torch.linalg.vector_norm(gradient, dtype=torch.float32) for gradient in gradients]
    norm = torch.nn.utils.get_total_norm(gradients)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm
