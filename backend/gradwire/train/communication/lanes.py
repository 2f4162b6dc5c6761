"""Starts collectives on private process groups and counts what they send."""

from __future__ import annotations

from datetime import timedelta
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor

# Private groups that nobody uses at the moment, by the group whose ranks they share. A destroyed group cannot be made
# again (torch would give it the same name, and gloo would find the old one's addresses), so it is used again instead.
_FREE: WeakKeyDictionary[dist.ProcessGroup, list[dist.ProcessGroup]] = WeakKeyDictionary()


class Lanes:
    """Process groups over the ranks of `process_group`, one for each collective of a method's chain.

    Gloo matches collectives by the order in which a group starts them. A method's second collective starts whenever
    its first ends, so it must not share a group with the first ones of later buckets: on one lane all ranks start
    the same collectives in the same order whatever the timing. On CUDA the whole chain is queued in order from one
    thread, so `process_group` itself serves every lane.
    """

    def __init__(self, process_group: dist.ProcessGroup, count: int, device: torch.device) -> None:
        self.rank: int = dist.get_rank(process_group)
        self.world_size: int = dist.get_world_size(process_group)
        self.payload_bytes = 0
        self.wire_bytes = 0
        self._private = device.type == "cpu" and self.world_size > 1
        self._process_group = process_group
        if self._private:
            free = _FREE.setdefault(process_group, [])
            self._groups = [free.pop() if free else _twin(process_group, device) for _ in range(count)]
        else:
            self._groups = [process_group] * count

    def all_reduce(self, lane: int, tensor: Tensor) -> dist.Work:
        """Start summing `tensor` over the ranks, in place."""
        self._count(tensor, 2)
        return dist.all_reduce(tensor, group=self._groups[lane], async_op=True)

    def all_to_all(self, lane: int, received: Tensor, sent: Tensor) -> dist.Work:
        """Start sending the n-th of equal parts of `sent` to rank n; `received` gets one part from each rank."""
        self._count(sent, 1)
        return dist.all_to_all_single(received, sent, group=self._groups[lane], async_op=True)

    def all_gather(self, lane: int, received: Tensor, sent: Tensor) -> dist.Work:
        """Start sending `sent` to every rank; `received` gets them in rank order."""
        self._count(sent, self.world_size)
        return dist.all_gather_single(received, sent, group=self._groups[lane], async_op=True)

    def reset_counts(self) -> None:
        """Begin a new step's count."""
        self.payload_bytes = self.wire_bytes = 0

    def close(self) -> None:
        """Hand back the private groups; on every rank, and only when no collective is under way or has failed."""
        if self._private:
            _FREE[self._process_group] += self._groups[::-1]
            self._private = False

    def _count(self, tensor: Tensor, halves: int) -> None:
        """Count a collective that sends `halves` x (n-1)/n of `tensor` per rank; an all-reduce sends 2."""
        size = tensor.numel() * tensor.element_size()
        self.payload_bytes += size * halves // 2
        self.wire_bytes += size * halves * (self.world_size - 1) // self.world_size


def _twin(process_group: dist.ProcessGroup, device: torch.device) -> dist.ProcessGroup:
    """Return a new gloo group with the ranks and the timeout of `process_group`."""
    timeout: timedelta = process_group._get_backend(device).options._timeout
    ranks = dist.get_process_group_ranks(process_group)
    return dist.new_group(ranks, timeout=timeout, backend="gloo", use_local_synchronization=True)
