"""Gives back the shared memory that DeepSpeed takes for its collectives between CPU processes and never removes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch.distributed

_FOLDER = Path("/dev/shm")  # noqa: S108 - where DeepSpeed puts them


def release_deepspeed_buffers() -> None:
    """Remove the name of this rank's buffer (66 MB) once every rank has mapped it; the memory ends with the processes.

    All ranks call this together, after DeepSpeed's engine is made. Without DeepSpeed it does nothing.
    """
    if "deepspeed" not in sys.modules:
        return
    # DeepSpeed's shm.cpp makes the name of these. Ranks map each other's while its process group is formed.
    place = (os.getuid(), os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT"), torch.distributed.get_rank())
    torch.distributed.barrier()
    buffer = _FOLDER / f"deepspeed_allreduce_buffer_{'_'.join(map(str, place))}"
    if buffer.parent == _FOLDER:
        buffer.unlink(missing_ok=True)
