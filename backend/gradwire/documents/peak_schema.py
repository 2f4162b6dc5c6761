# Generated from the JSON Schemas by `make documents`; never edited.

from __future__ import annotations

from typing import Literal
from msgspec import Struct


class MatmulRate(Struct, frozen=True, kw_only=True):
    """The fastest of several sizes of square products of one data type."""

    dtype: Literal["fp32", "bf16", "fp16"]
    """Data type of both factors and of the product; fp32 is not TF32."""
    threads: int | None
    """Compute threads of the process; null on cuda."""
    size: int
    """Rows and columns of the fastest square factors."""
    flops_per_second: float
    """2 x size^3 over the seconds of one product."""


class MatmulPeak(Struct, frozen=True, kw_only=True):
    """The fastest matrix products that one device was seen to do: `gradwire doctor --peak`."""

    format_version: Literal[1]
    """Version of this document's format."""
    device: Literal["cuda", "cpu"]
    """Kind of device."""
    device_name: str
    """Name of the device, as torch gives it; the processor's on a cpu."""
    torch: str
    """Version of torch."""
    measured_at: str
    """When it was measured, UTC, ISO 8601."""
    rates: list[MatmulRate]
    """The fastest product of each data type, and on a cpu of each number of threads."""
