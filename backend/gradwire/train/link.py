"""Measures what joins the ranks of a process group: the latency of a collective and the bandwidth of a link."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from gradwire.measure.communication_cost import Wire

_LATENCY_PROBES = 20
_FIRST_PAYLOAD_BYTES = 64 * 1024
_GROWTH = 8
_LARGEST_PAYLOAD_BYTES = 64 * 1024 * 1024
# A probe this long is far above the latency and what a token bucket or a socket buffer lets through at once.
_LONG_ENOUGH_SECONDS = 0.03


def measure_wire(process_group: Any, device: torch.device) -> Wire:
    """Return the link as the slowest rank sees it: equal on every rank, all of which call this together.

    Takes a few hundred milliseconds. Payloads grow until one takes long enough; twice 64 MiB end it at the latest.
    """
    world_size = dist.get_world_size(process_group)

    def slowest(seconds: float) -> float:
        value = torch.tensor([seconds], dtype=torch.float64, device=device)
        dist.all_reduce(value, op=dist.ReduceOp.MAX, group=process_group)
        return float(value.item())

    def timed(payload: torch.Tensor) -> float:
        # All begin together: otherwise the first would time how late the others are.
        dist.barrier(group=process_group)
        return _seconds_of(lambda: dist.all_reduce(payload, group=process_group), device)

    tiny = torch.zeros(1, device=device)
    timed(tiny)
    latency = slowest(statistics.median(timed(tiny) for _ in range(_LATENCY_PROBES)))
    payload_bytes = _FIRST_PAYLOAD_BYTES
    while True:
        payload = torch.zeros(payload_bytes // 4, device=device)
        seconds = slowest(min(timed(payload) for _ in range(2)))
        if seconds >= _LONG_ENOUGH_SECONDS or payload_bytes >= _LARGEST_PAYLOAD_BYTES:
            break
        payload_bytes *= _GROWTH
    share = 2 * (world_size - 1) / world_size
    return Wire(
        world_size=world_size,
        bytes_per_second=share * payload_bytes / max(seconds - latency, seconds / 2),
        latency_seconds=latency,
    )


def _seconds_of(call: Callable[[], object], device: torch.device) -> float:
    started = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started
