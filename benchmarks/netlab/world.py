"""What every worker of the lab does first and last: join the world, count bytes, leave without a trace."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from benchmarks.netlab.job import HOSTS_VARIABLE
from benchmarks.netlab.network import LOOPBACK

_TIMEOUT = timedelta(seconds=120)
_PROBES = 20


def join() -> None:
    """Join the world that torchrun describes, over gloo, with one thread for arithmetic."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=_TIMEOUT)


def leave() -> NoReturn:
    """End this process; after a run with hooks, gloo may abort in an ordinary exit of the interpreter."""
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def interface_bytes() -> tuple[int, int]:
    """Return what this host's interface has sent and received, in bytes, as the kernel counts.

    Over loopback, which all hosts share, it is each one's part.
    """
    name = os.environ[HOSTS_VARIABLE]
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        head, _, counts = line.partition(":")
        if head.strip() == name:
            fields = counts.split()
            sharing = dist.get_world_size() if name == LOOPBACK else 1
            return int(fields[8]) // sharing, int(fields[0]) // sharing
    raise LookupError(f"no interface {name} on this host")


def gathered(value: Any) -> list[Any]:
    """Return every rank's `value`, in rank order."""
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def agreed(value: Any) -> Any:
    """Return rank 0's `value`."""
    values = [value]
    dist.broadcast_object_list(values, src=0)
    return values[0]


def all_reduce_speed(probe_bytes: int) -> tuple[float, float]:
    """Return the seconds of a tiny all-reduce (median), and the bytes per second of one of `probe_bytes` (best of 3).

    Both are the slowest rank's; the second leaves out what the first takes.
    """
    tiny, large = torch.zeros(1), torch.zeros(probe_bytes // 4)
    latency = statistics.median(_timed(lambda: dist.all_reduce(tiny)) for _ in range(_PROBES))
    best = min(_timed(lambda: dist.all_reduce(large)) for _ in range(3))
    latencies, bests = zip(*gathered((latency, best)), strict=True)
    return max(latencies), probe_bytes / max(max(bests) - max(latencies), 1e-9)


def _timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
