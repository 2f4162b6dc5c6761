"""What each communication method costs per step in CPU time and in wall time, against torch's PowerSGD on one bucket.

Six layers, 7.57 million parameters; buckets of 4 MiB hold one layer each. Compute is emulated: the backward pass of a
layer sleeps and hands out gradients made before. Buckets, hooks and gloo are real; the network is loopback unless the
processes are started elsewhere. Configurations are measured in turn, A B A B, and compared round by round.

    torchrun --nproc_per_node 2 benchmarks/communication_cost.py [--rounds 12] [--rank 4] [--sleep 0.035]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gradwire.documents.recipe_schema import Compression
from gradwire.train.communication import GradientCommunication, register

LAYERS, WIDTH = 6, 1123
BASELINE = "powersgd-torch, one bucket"


class _HandOut(torch.autograd.Function):
    """A layer whose forward does nothing and whose backward sleeps and hands out gradients."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, made: tuple[Tensor, Tensor], seconds: float
    ) -> Tensor:
        ctx.made, ctx.seconds = made, seconds
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        if ctx.seconds:
            time.sleep(ctx.seconds)
        return gradient, ctx.made[0], ctx.made[1], None, None


class Emulated(nn.Module):
    """Layers with real-sized gradients and no arithmetic."""

    def __init__(self, made: list[tuple[Tensor, Tensor]], seconds: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in made)
        self._made, self._seconds = made, seconds

    def forward(self, x: Tensor) -> Tensor:
        for layer, made in zip(self.layers, self._made, strict=True):
            x = _HandOut.apply(x, layer.weight, layer.bias, made, self._seconds)
        return x


def configurations(rank: int) -> dict[str, tuple[Compression, float | None]]:
    """Return name -> (compression, bucket_cap_mb)."""
    low_rank = {"matrix_approximation_rank": rank, "start_step": 2}
    return {
        "none, 25 MiB": (Compression(), None),
        BASELINE: (Compression(method="powersgd-torch", **low_rank), 1000),
        "powersgd, one bucket": (Compression(method="powersgd", **low_rank), 1000),
        "powersgd, 4 MiB": (Compression(method="powersgd", **low_rank), 4),
        "powersgd, 4 MiB, bf16 wire": (Compression(method="powersgd", wire_dtype="bf16", **low_rank), 4),
        "powersgd-alternating, 4 MiB, bf16 wire": (
            Compression(method="powersgd-alternating", wire_dtype="bf16", **low_rank),
            4,
        ),
        "bf16, 4 MiB": (Compression(method="bf16"), 4),
        "int8, 4 MiB": (Compression(method="int8"), 4),
        "topk, 4 MiB": (Compression(method="topk"), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rank", type=int, default=4, help="matrix approximation rank")
    parser.add_argument("--sleep", type=float, default=0.035, help="seconds of emulated backward per layer")
    parser.add_argument("--only", nargs="*", help="configurations to measure, by the start of their name")
    parser.add_argument("--out", type=Path, help="write the raw rows here, as JSON lines")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    generator = torch.Generator().manual_seed(dist.get_rank())
    made = [
        (torch.randn(WIDTH, WIDTH, generator=generator), torch.randn(WIDTH, generator=generator)) for _ in range(LAYERS)
    ]
    runs: dict[str, tuple[DistributedDataParallel, GradientCommunication]] = {}
    for name, (compression, bucket_cap_mb) in configurations(arguments.rank).items():
        if arguments.only and name != BASELINE and not any(name.startswith(start) for start in arguments.only):
            continue
        model = DistributedDataParallel(
            Emulated(made, arguments.sleep), bucket_cap_mb=bucket_cap_mb, gradient_as_bucket_view=True
        )
        runs[name] = model, register(model, compression, process_group=dist.distributed_c10d._get_default_group())
        for _ in range(4):
            step(model)
    rows = [
        {"round": number, "configuration": name, **measure(model, arguments.steps)}
        for number in range(arguments.rounds)
        for name, (model, _) in runs.items()
    ]
    if dist.get_rank() == 0:
        if arguments.out:
            arguments.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
        report(rows, {name: communication for name, (_, communication) in runs.items()})
    for _, communication in runs.values():
        communication.close()
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)


def step(model: DistributedDataParallel) -> None:
    model.zero_grad()
    model(torch.zeros(1, requires_grad=True)).sum().backward()


def measure(model: DistributedDataParallel, steps: int) -> dict[str, float]:
    """Return seconds of wall and of CPU time (all threads of this process) per step."""
    dist.barrier()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step(model)
    return {
        "wall_seconds": (time.perf_counter() - wall) / steps,
        "cpu_seconds": (time.process_time() - cpu) / steps,
    }


def report(rows: list[dict[str, Any]], communications: dict[str, GradientCommunication]) -> None:
    """Print medians, and ratios to the baseline with their quartiles, taken round by round."""

    def column(name: str, key: str) -> list[float]:
        return [row[key] for row in rows if row["configuration"] == name]

    titles = f"{'wall ms':>8} {'CPU ms':>8}  {'wall / baseline':>20}  {'CPU / baseline':>20} {'bytes 1/':>9}"
    sys.stdout.write(f"{'configuration':40} {titles}\n")
    for name, communication in communications.items():
        cells = []
        for key in ("wall_seconds", "cpu_seconds"):
            ratios = [ours / theirs for ours, theirs in zip(column(name, key), column(BASELINE, key), strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            cells.append(f"{middle:.2f} ({low:.2f}-{high:.2f})")
        wall, cpu = (1e3 * statistics.median(column(name, key)) for key in ("wall_seconds", "cpu_seconds"))
        traffic = communication.last_step
        shrunk = traffic.gradient_bytes / traffic.payload_bytes if traffic else 0.0
        sys.stdout.write(f"{name:40} {wall:8.1f} {cpu:8.1f}  {cells[0]:>20}  {cells[1]:>20} {shrunk:9.1f}\n")


if __name__ == "__main__":
    main()
