"""Repeats, in the first backward pass of a resumed run, the buckets that the interrupted run had."""

from __future__ import annotations

from collections.abc import Sequence

Names = tuple[str, ...]


class RememberedBuckets:
    """Which parameters are averaged together.

    DDP starts every process with one large bucket and splits it after the first backward pass. The order of additions
    on the ring, int8's blocks and topk's choice depend on the buckets, so a resumed run whose first step used other
    ones would not repeat the uninterrupted run to the bit.
    """

    def __init__(self) -> None:
        self.last: list[Names] = []
        self.to_repeat: list[Names] = []
        self._current: list[Names] = []

    def arrange(self, names: Names) -> list[Names]:
        """Return the groups in which DDP's next bucket, of parameters `names`, is averaged: usually itself."""
        within = set(names)
        groups = [group for group in self.to_repeat if within.issuperset(group)]
        if sum(len(group) for group in groups) != len(names):
            groups = [names]
        self._current += groups
        return groups

    def end_backward(self) -> None:
        """Note that the backward pass has handed over its last bucket; from now on DDP's own buckets are used."""
        self.last, self._current = self._current, []
        self.to_repeat = []

    def resume(self, buckets: Sequence[Names]) -> None:
        """Repeat `buckets`, from a saved state, in the next backward pass."""
        self.to_repeat = list(buckets)
        self.last = list(buckets)
