"""Puts a meter's window of steps under the names that dashboards know, over all processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from gradwire.measure.meter import ThroughputMeter


@dataclass(frozen=True, kw_only=True, slots=True)
class Flops:
    """What turns tokens into utilization: model FLOPs per token, and one device's dense peak in FLOP/s."""

    per_token: float
    peak_per_second: float


def figures(
    meter: ThroughputMeter, *, first_step: int = 0, device: Any = "cpu", flops: Flops | None = None
) -> dict[str, float]:
    """Return the rates over the timed steps from `first_step` (counted from 0) on; empty without such a step.

    The names are those of Composer's and Lightning's monitors; `device/` is a rank's share:

    * `throughput/samples_per_sec`, `throughput/tokens_per_sec`, `throughput/slots_per_sec` (tokens with padding)
    * `throughput/device/samples_per_sec`, `throughput/device/tokens_per_sec`
    * with `flops`: `throughput/device/flops_per_sec`, `throughput/device/mfu` (none above 1: then an input is wrong)
    * on cuda: `memory/peak_allocated_bytes`, `memory/peak_reserved_bytes`, of this rank

    In a process group this is a collective call, on `device`: each rank makes it, for the same steps.
    """
    everyone = _everyones(list(meter.timed_since(first_step)), device)
    seconds = max(process[0] for process in everyone)
    if seconds <= 0:
        return {}
    samples, tokens, slots = (sum(process[place] for process in everyone) / seconds for place in (1, 2, 3))
    found = {
        "throughput/samples_per_sec": samples,
        "throughput/tokens_per_sec": tokens,
        "throughput/slots_per_sec": slots,
        "throughput/device/samples_per_sec": samples / len(everyone),
        "throughput/device/tokens_per_sec": tokens / len(everyone),
    }
    if flops is not None:
        achieved = flops.per_token * tokens / len(everyone)
        found["throughput/device/flops_per_sec"] = achieved
        if achieved <= flops.peak_per_second:
            found["throughput/device/mfu"] = achieved / flops.peak_per_second
    if torch.device(device).type == "cuda":
        found["memory/peak_allocated_bytes"] = torch.cuda.max_memory_allocated(device)
        found["memory/peak_reserved_bytes"] = torch.cuda.max_memory_reserved(device)
    return found


def _everyones(mine: list[float], device: Any) -> list[list[float]]:
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return [mine]
    sent = torch.tensor(mine, dtype=torch.float64, device=device)
    received = [torch.empty_like(sent) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(received, sent)
    return [process.tolist() for process in received]
