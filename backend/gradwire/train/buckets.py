"""Settles DDP's bucket sizes before the model is wrapped: as the recipe says, or from what the ranks measure."""

from __future__ import annotations

from typing import Any

import torch

from gradwire.documents.measurement_schema import Buckets
from gradwire.documents.recipe_schema import Recipe
from gradwire.measure.communication_cost import MEBIBYTE, Step, Wire, best_bucket_cap, ddp_buckets, step_seconds
from gradwire.measure.method_costs import candidate_caps, method_cost
from gradwire.recipe.torch_buckets import TORCH_BUCKET_MIB, TORCH_FIRST_BUCKET_MIB
from gradwire.train.communication.arithmetic import measure_arithmetic
from gradwire.train.link import measure_wire
from gradwire.train.passes import Passes, balanced_step, timed_step


def settle_buckets(
    model: Any, recipe: Recipe, *, process_group: Any, device: torch.device, passes: Passes | None
) -> Buckets:
    """Return the bucket sizes for `model`, which DDP has not wrapped yet; equal on every rank.

    Where the recipe says auto, all ranks measure together: latency and bandwidth of `process_group`, the method's
    arithmetic, and with `passes` (None: they cannot be run ahead) when each gradient is ready.
    """
    overlap = recipe.communication.overlap
    if overlap.bucket_cap_mb == "auto":
        return _measured(model, recipe, process_group=process_group, device=device, passes=passes)
    cap, first = overlap.bucket_cap_mb, overlap.first_bucket_mb
    if cap is None and first is None:
        reason = "the recipe leaves them out"
        sizes = {"bucket_cap_mb": float(TORCH_BUCKET_MIB), "first_bucket_mb": float(TORCH_FIRST_BUCKET_MIB)}
        return Buckets(**sizes, source="torch", reason=reason)
    given = [name for name in ("bucket_cap_mb", "first_bucket_mb") if getattr(overlap, name) is not None]
    cap = float(TORCH_BUCKET_MIB) if cap is None else cap
    return Buckets(
        bucket_cap_mb=cap,
        first_bucket_mb=cap if first is None else first,
        source="recipe",
        reason=f"the recipe says {' and '.join(given)}",
    )


def _measured(
    model: Any, recipe: Recipe, *, process_group: Any, device: torch.device, passes: Passes | None
) -> Buckets:
    wire = measure_wire(process_group, device)
    micro_steps = recipe.training.gradient_accumulation
    if passes is None:
        elements = [parameter for parameter in model.parameters() if parameter.requires_grad]
        total = sum(parameter.numel() * parameter.element_size() for parameter in elements)
        step = balanced_step(model, wire.all_reduce_seconds(total), micro_steps=micro_steps)
        compute = "compute taken to be as long as communication, since the passes could not be run ahead"
    else:
        step = timed_step(model, passes, micro_steps=micro_steps, process_group=process_group, device=device)
        compute = f"compute measured as {step.compute_seconds:.3g} s"
    arithmetic = measure_arithmetic(model, recipe.communication.compression, process_group=process_group, device=device)
    cost = method_cost(
        recipe.communication.compression,
        bytes_per_element=step.bytes_per_element,
        seconds_per_byte=arithmetic.seconds_per_byte,
        seconds_per_bucket=arithmetic.seconds_per_bucket,
    )
    first_mb = recipe.communication.overlap.first_bucket_mb
    first_bytes = None if first_mb is None else first_mb * MEBIBYTE
    # torch.compile asserts on buckets below DDP's own first one.
    smallest = float(TORCH_FIRST_BUCKET_MIB * MEBIBYTE) if recipe.training.compile else 0.0
    caps = [each for each in candidate_caps(step) if each >= smallest] or [smallest]
    cap, seconds = best_bucket_cap(step, cost, wire, caps=caps, first_bucket_bytes=first_bytes)
    if cap is None:
        raise ValueError("every candidate is a size")
    cap_mb = cap / MEBIBYTE
    return Buckets(
        bucket_cap_mb=cap_mb,
        first_bucket_mb=cap_mb if first_mb is None else min(first_mb, cap_mb),
        source="auto",
        reason=f"{_predicted(step, cap, first_bytes, seconds)}, {_by_default(step, cost, wire)}; {compute}",
        latency_seconds=wire.latency_seconds,
        bytes_per_second=wire.bytes_per_second,
    )


def _predicted(step: Step, cap: float, first_bytes: float | None, seconds: float) -> str:
    count = len(ddp_buckets(step, cap, first_bytes))
    return f"predicted step {seconds:.3g} s with {count} bucket{'' if count == 1 else 's'}"


def _by_default(step: Step, cost: Any, wire: Wire) -> str:
    return f"{step_seconds(step, cost, wire, bucket_cap_bytes=None):.3g} s with torch's own sizes"
