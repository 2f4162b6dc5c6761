# Generated from the JSON Schemas by `make documents`; never edited.

from __future__ import annotations

from msgspec import Struct
from typing import Literal


class MethodArithmetic(Struct, frozen=True, kw_only=True):
    """Arithmetic of one method of gradient compression."""

    name: str
    """The method, as `gradwire advise` names it."""
    seconds_per_byte: float
    """Seconds for each byte of gradient."""
    seconds_per_bucket: float
    """Seconds that each bucket adds."""


class Figures(Struct, frozen=True, kw_only=True):
    """What `gradwire advise` rests on: the link, the compute of a micro-step, and each method's arithmetic. Measured by it, or written by hand."""

    format_version: Literal[1]
    """Version of this document's format."""
    device: Literal["cuda", "cpu"]
    """Kind of device that computed."""
    latency_seconds: float
    """Seconds of an empty all-reduce."""
    bytes_per_second: float
    """Speed of a link in each direction."""
    compute_seconds: float
    """Forward and backward pass of one micro-step, without communication."""
    arithmetic: list[MethodArithmetic]
    """What each method computes."""
