"""Says when two values are one and the same to the programs that read them."""

from __future__ import annotations

from typing import Any


def same(one: Any, other: Any) -> bool:
    """Return whether two values are the same to a program: 1 and 1.0 are, 1 and true are not."""
    if isinstance(one, bool) != isinstance(other, bool):
        return False
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(left, right) for left, right in zip(one, other, strict=True))
    return bool(one == other)
