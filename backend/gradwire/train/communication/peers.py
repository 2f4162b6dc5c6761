"""Says which rank has died when a collective fails: gloo names an address, not a rank."""

from __future__ import annotations

import os
import socket
import time

import psutil
import torch.distributed as dist

# A dying process closes its connections a moment before it is seen to be dead.
_PATIENCE_SECONDS = 1.0
_POLL_SECONDS = 0.05


class Peers:
    """The processes of a group. Only those on this machine can be looked at."""

    def __init__(self, process_group: dist.ProcessGroup) -> None:
        """Exchange host names and process ids; every rank of the group does this together."""
        places: list[tuple[str, int] | None] = [None] * dist.get_world_size(process_group)
        dist.all_gather_object(places, (socket.gethostname(), os.getpid()), group=process_group)
        self._processes = {
            rank: psutil.Process(place[1])
            for rank, place in enumerate(places)
            if place is not None and place[0] == socket.gethostname() and psutil.pid_exists(place[1])
        }

    def dead_ranks(self) -> list[int]:
        """Return the ranks of this machine whose process has ended, after waiting up to a second for one."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            dead = self.ended_ranks()
            if dead or time.monotonic() > deadline:
                return dead
            time.sleep(_POLL_SECONDS)

    def ended_ranks(self) -> list[int]:
        """Return the ranks of this machine whose process has ended by now."""
        return [rank for rank, process in self._processes.items() if not _lives(process)]


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
