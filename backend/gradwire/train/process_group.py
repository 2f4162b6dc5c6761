"""Begins and ends the job's process group, and says in words what a broken one means."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed

from gradwire.documents.plan_schema import World
from gradwire.errors import EnvironmentNotFit, RunFailed
from gradwire.train.communication.roll_call import culprits, roll_call
from gradwire.train.setting import Place

TIMEOUT_SECONDS = {"gloo": 120, "nccl": 600}
"""How long a collective waits for a rank that does not come, per process-group backend."""

_PEER_GONE = ("connection closed by peer", "connection reset", "broken pipe", "connection refused", "socketexception")
_PEER_LATE = ("timed out", "timeout")


def choose_device(world: World, place: Place) -> Any:
    """Return this rank's torch device; raises EnvironmentNotFit where the machine has too few."""
    if world.device == "cpu":
        # One worker is one thread, as torchrun has it, so that 1, 2 and 4 processes compare; the variable overrides.
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or 1))
        return torch.device("cpu")
    available = torch.cuda.device_count()
    if place.local_rank >= available:
        raise EnvironmentNotFit(
            f"the plan is for cuda with {world.processes_per_node} processes on each machine, but this one has "
            f"{available} CUDA devices; lower again with --device cpu or with --num-gpus {available or 1}"
        )
    device = torch.device("cuda", place.local_rank)
    torch.cuda.set_device(device)
    return device


def begin_process_group(world: World, place: Place, device: Any, *, averages_on_cpu: bool = False) -> None:
    """Form the process group; raises EnvironmentNotFit where the ranks do not find each other.

    `averages_on_cpu`: tensors in the machine's memory are exchanged too, beside those of a GPU.
    """
    backend = world.process_group_backend
    both = f"cpu:gloo,cuda:{backend}" if averages_on_cpu and device.type == "cuda" else backend
    options: dict[str, Any] = {"backend": both, "timeout": timedelta(seconds=TIMEOUT_SECONDS[backend])}
    if device.type == "cuda":
        options["device_id"] = device
    if not place.launched:
        options |= {"store": torch.distributed.HashStore(), "rank": 0, "world_size": 1}
    try:
        torch.distributed.init_process_group(**options)
    except torch.distributed.DistError as error:
        address = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        raise EnvironmentNotFit(
            f"rank {place.rank} of {place.world_size} did not find the others at {address} "
            f"(MASTER_ADDR, MASTER_PORT): {_first_line(error)}"
        ) from None


def check_agreement(description: dict[str, object]) -> None:
    """Raise EnvironmentNotFit where another rank's `description` (of its plan, its text) differs from this one's."""
    world_size = torch.distributed.get_world_size()
    everyone: list[dict[str, object]] = [{} for _ in range(world_size)]
    torch.distributed.all_gather_object(everyone, description)
    differing = {
        (rank, name) for rank, other in enumerate(everyone) for name in description if other[name] != everyone[0][name]
    }
    if differing:
        listed = ", ".join(f"rank {rank}: {name}" for rank, name in sorted(differing))
        raise EnvironmentNotFit(
            f"not all ranks read the same as rank 0 ({listed}); copy the same files to every machine"
        )


def explain_collective_failure(error: RuntimeError, world: World) -> RunFailed | None:
    """Return what a torch error out of a collective means, or None where it is something else."""
    text = str(error).lower()
    if any(sign in text for sign in _PEER_GONE):
        return RunFailed(
            f"the connection to another rank broke: {_who_is_missing()}; its own message, above or in its log, is the "
            f"cause ({_first_line(error)})"
        )
    if any(sign in text for sign in _PEER_LATE):
        seconds = TIMEOUT_SECONDS[world.process_group_backend]
        return RunFailed(
            f"another rank did not answer within {seconds} seconds: {_who_is_missing()} ({_first_line(error)})"
        )
    return None


def _who_is_missing() -> str:
    asked = roll_call()
    return "that rank was killed or crashed, or hangs" if asked is None else culprits(asked.missing_ranks())


def end_process_group() -> None:
    """Wait for every rank and leave the group, so that no rank hangs up on one that still talks."""
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def leave(exit_code: int) -> NoReturn:
    """End the process at once: gloo's threads abort about one interpreter exit in ten."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def leave_on_termination(rank: int) -> None:
    """End with exit code 143 on SIGTERM, soon and with a message, even while a collective blocks the main thread.

    A launcher tells all ranks to stop when one has died: the message names it.

    Python runs signal handlers in the main thread only, between its own instructions; the byte that the signal
    writes to a socket wakes a thread of its own.
    """
    waiting, woken = socket.socketpair()
    woken.setblocking(False)
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)

    def watch() -> None:
        while waiting.recv(1) != bytes([signal.SIGTERM]):
            pass
        asked = roll_call()
        missing = asked.missing_ranks() if asked is not None else []
        why = culprits(missing) if missing else "a launcher does that when another rank failed"
        sys.stderr.write(f"gradwire: rank {rank}: told to stop (SIGTERM); {why}\n")
        woken.close()
        if asked is not None and missing:
            asked.linger()
        leave(128 + signal.SIGTERM)

    threading.Thread(target=watch, name="termination", daemon=True).start()


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
