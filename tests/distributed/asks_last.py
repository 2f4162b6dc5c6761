"""A rank of three: 1 dies, 0 holds the store, asks who is missing and ends, 2 asks only then and prints the answer."""

from __future__ import annotations

import os
import signal
import sys
import time

import psutil
import torch.distributed as dist

from gradwire.train.communication.roll_call import RollCall


def main() -> None:
    dist.init_process_group("gloo")
    roll_call = RollCall(dist.group.WORLD)
    pids: list[int] = [0, 0, 0]
    dist.all_gather_object(pids, os.getpid())
    dist.barrier()
    rank = dist.get_rank()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 2:
        first = psutil.Process(pids[0])
        while first.is_running() and first.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.05)
    missing = roll_call.missing_ranks()
    sys.stdout.write(f"rank {rank}: missing {missing}\n")
    sys.stdout.flush()
    roll_call.linger()
    os._exit(0)


if __name__ == "__main__":
    main()
