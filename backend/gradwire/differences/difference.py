"""What a difference is: a path, and what each of two sides ends up with there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

About = Literal["recipe", "deepspeed", "accelerate", "trainer"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Value:
    """What one side ends up with: the value, and what it rests on in words. `file` None: no file says it."""

    value: Any
    origin: str
    file: str | None = None
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One path at which the sides differ; `about` says in whose spelling the path is."""

    about: About
    path: str
    a: Value
    b: Value
