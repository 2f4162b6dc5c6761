"""Measures the fastest matrix products of this machine's device: `python -m gradwire.train.matmul_peak` prints them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
import torch

from gradwire.documents.peak_schema import MatmulPeak, MatmulRate
from gradwire.measure.hardware import cpu_name, usable_cpus
from gradwire.train.number_format import DTYPES, NumberFormat

_CUDA_SIZES = (2048, 4096, 8192, 16384)
_CPU_SIZES = (256, 512, 1024)
# Products are timed in groups this long, so that starting them takes no part of it; the fastest group counts.
_GROUP_SECONDS = 0.05
_GROUPS = 4
# A larger product is left out where one is expected to take longer than this.
_LONGEST_SECONDS = 1.0


def measure_peak() -> MatmulPeak:
    """Return the rates of the first CUDA device at fp32 (not TF32), bf16 and fp16; without one, the cpu's.

    On a cpu, with one thread and with as many as this process may use, since a rank has one or the other.
    """
    if torch.cuda.is_available():
        device = torch.device("cuda", 0)
        torch.backends.cuda.matmul.allow_tf32 = False
        name = str(torch.cuda.get_device_name(device))
        dtypes: list[NumberFormat] = ["fp32", "bf16", "fp16"]
        rates = [fastest_product(device, dtype, None, _CUDA_SIZES) for dtype in dtypes]
    else:
        device, name = torch.device("cpu"), cpu_name()
        dtypes = ["fp32", "bf16"]
        rates = [
            fastest_product(device, dtype, threads, _CPU_SIZES)
            for threads in sorted({1, usable_cpus()})
            for dtype in dtypes
        ]
    return MatmulPeak(
        format_version=1,
        device=device.type,
        device_name=name,
        torch=str(torch.__version__),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        rates=rates,
    )


def fastest_product(device: Any, dtype: NumberFormat, threads: int | None, sizes: Sequence[int]) -> MatmulRate:
    """Return the fastest of the square products of `sizes`, smallest first, with `threads` compute threads on a cpu.

    Raises ValueError without sizes.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    best: MatmulRate | None = None
    for size in sizes:
        flops = 2 * size**3
        if best is not None and flops / best.flops_per_second > _LONGEST_SECONDS:
            break
        one, other = (torch.randn(size, size, device=device, dtype=DTYPES[dtype]) for _ in range(2))
        multiply = partial(torch.matmul, one, other, out=torch.empty_like(one))
        rate = flops / _seconds_of(multiply, device)
        if best is None or rate > best.flops_per_second:
            best = MatmulRate(dtype=dtype, threads=threads, size=size, flops_per_second=rate)
    if best is None:
        raise ValueError("no size to multiply")
    return best


def _seconds_of(multiply: Callable[[], object], device: Any) -> float:
    multiply()
    count = 1
    fastest = _group_seconds(multiply, 1, device)
    for _ in range(_GROUPS):
        count = max(1, round(_GROUP_SECONDS / fastest))
        fastest = min(fastest, _group_seconds(multiply, count, device) / count)
    return fastest


def _group_seconds(multiply: Callable[[], object], count: int, device: Any) -> float:
    _wait_for(device)
    began = time.perf_counter()
    for _ in range(count):
        multiply()
    _wait_for(device)
    return time.perf_counter() - began


def _wait_for(device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(measure_peak(), order="sorted").decode() + "\n")
