"""Tells the data type in which a running model's matrix products are made, which is not always its parameters'."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch

from gradwire.measure.rank_log import Products

_NAMES: dict[torch.dtype, Products] = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
# Accelerate's names of what it casts to within the model's call, where no context around it shows.
_ACCELERATE: dict[str, Products] = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}


def products_of(
    stepped: Any, modules: Sequence[torch.nn.Module], parameters: Sequence[Any], *, is_engine: bool
) -> Products | None:
    """Return the data type of the products that `stepped`, an optimizer or DeepSpeed's engine, trains with.

    To be called where the model is, within an autocast context if the script has one. None: parameters are of several
    types, and nothing casts them to one.
    """
    device = parameters[0].device.type if parameters else "cpu"
    if torch.is_autocast_enabled(device):
        return _of(torch.get_autocast_dtype(device), device)
    if is_engine and (stepped.bfloat16_enabled() or stepped.fp16_enabled()):
        return "bf16" if stepped.bfloat16_enabled() else "fp16"
    state = sys.modules.get("accelerate.state")
    if state is not None and state.AcceleratorState._shared_state:
        cast = _ACCELERATE.get(str(state.AcceleratorState().mixed_precision))
        if cast is not None:
            return cast
    for module in modules:
        policy = _fully_shard_policy(module)
        if policy is not None and policy.param_dtype is not None:
            return _of(policy.param_dtype, device)
    kinds = {parameter.dtype for parameter in parameters if parameter.is_floating_point()}
    return _of(kinds.pop(), device) if len(kinds) == 1 else None


def _fully_shard_policy(module: Any) -> Any:
    get_state = getattr(module, "_get_fsdp_state", None)
    return getattr(get_state(), "_mp_policy", None) if callable(get_state) else None


def _of(kind: torch.dtype, device: str) -> Products | None:
    found = _NAMES.get(kind)
    return "tf32" if found == "fp32" and device == "cuda" and _is_tf32() else found


def _is_tf32() -> bool:
    # From torch 2.9 on; asked for the older setting, it raises where a script or the Trainer made the newer one.
    precision = getattr(torch.backends.cuda.matmul, "fp32_precision", None)
    return torch.get_float32_matmul_precision() != "highest" if precision is None else str(precision) == "tf32"
