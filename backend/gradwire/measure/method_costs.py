"""What each method of a recipe sends, as the cost model sees it."""

from __future__ import annotations

from typing import Literal

from gradwire.documents.recipe_schema import Compression
from gradwire.measure.communication_cost import MEBIBYTE, MethodCost, Step

_INDEX_BYTES = 4
_SCALE_BYTES = 4
# Candidate bucket sizes: this share of all gradients, and sizes by themselves.
_MOST_BUCKETS = 32
_SMALLEST_CAP_BYTES = 16 * 1024
# A cap that the last tensor of a layer reaches must not fail by rounding.
_ROUNDED_DOWN = 0.999


def method_cost(
    compression: Compression,
    *,
    name: str | None = None,
    bytes_per_element: int = 4,
    seconds_per_byte: float = 0.0,
    seconds_per_bucket: float = 0.0,
) -> MethodCost:
    """Return what `compression` sends for gradients of `bytes_per_element`, with its measured arithmetic."""
    method, rank = compression.method, compression.matrix_approximation_rank
    factor_bytes = {"bf16": 2.0, "fp32": 4.0, None: float(bytes_per_element)}[compression.wire_dtype]
    sent, collectives, factored, gathered = float(bytes_per_element), 1, False, False
    factors: Literal[1, 2] = 2
    match method:
        case "none":
            pass
        case "fp16-torch":
            sent = 2.0
        case "fp16" | "bf16":
            # Summed in fp32: reduce-scatter and all-gather by hand.
            sent, collectives = 2.0, 2
        case "powersgd-torch":
            collectives, factored = 3, True
        case "powersgd":
            sent, collectives, factored = factor_bytes, 2, True
        case "powersgd-alternating":
            sent, factored, factors = factor_bytes, True, 1
        case "int8":
            sent, collectives = 1 + _SCALE_BYTES / compression.int8_block_size, 2
        case "local-sgd":
            # Of parameters, once in a number of steps, and not while a backward pass runs.
            whole = 1 + _SCALE_BYTES / compression.int8_block_size if compression.difference_dtype else sent
            sent = whole / compression.local_steps
        case "topk":
            sent, gathered = compression.topk_fraction * (4 + _INDEX_BYTES), True
    return MethodCost(
        name=name or method,
        bytes_per_element=sent,
        collectives=collectives,
        matrix_approximation_rank=rank if factored else None,
        factors=factors,
        min_compression_rate=compression.min_compression_rate,
        gathered=gathered,
        compression_seconds_per_byte=seconds_per_byte,
        compression_seconds_per_bucket=seconds_per_bucket,
    )


def candidate_caps(step: Step) -> list[float]:
    """Return bucket sizes worth trying for the gradients of `step`, in bytes from small to large: up to everything."""
    total = step.gradient_bytes
    shares = {total / number for number in range(1, _MOST_BUCKETS + 1)}
    whole = {float(MEBIBYTE << power) for power in range(11)}
    return sorted(_ROUNDED_DOWN * cap for cap in shares | whole if _SMALLEST_CAP_BYTES <= cap <= total or cap == total)
