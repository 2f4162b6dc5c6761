"""Finds out which ranks have died, on any machine: when one rank asks, every one that lives answers in the store."""

from __future__ import annotations

import os
import threading
import time

import torch.distributed as dist

from gradwire.train.communication.peers import Peers

# How often each rank looks whether anybody asks; with more ranks less often, so that the store has little to do.
_POLL_SECONDS = 0.25
_RANKS_PER_POLL = 256
# A rank that lives answers within a poll; a busy machine may need longer.
_PATIENCE_SECONDS = 4.0
# A dying process closes its connections a moment before it is seen to be dead.
_SEEN_DEAD_SECONDS = 0.5
# Ranks that are not the dead one's neighbours learn of it when its neighbours end.
_LINGER_SECONDS = 3.0
# One that is stopped is not waited for longer.
_TELL_SECONDS = 10.0
_ASKED = "gradwire/roll-call"
_FOUND = f"{_ASKED}/found"


class RollCall:
    """This rank's part in it: a thread of its own answers, since a rank's main thread may wait in a collective."""

    def __init__(self, process_group: dist.ProcessGroup) -> None:
        """All ranks of the job make one together, once."""
        self._rank: int = dist.get_rank(process_group)
        self._world_size: int = dist.get_world_size(process_group)
        self._poll_seconds = _POLL_SECONDS * max(1.0, self._world_size / _RANKS_PER_POLL)
        self._peers = Peers(process_group)
        store = dist.distributed_c10d._get_default_store()
        self._store = store.clone()
        # Connections of its own: another thread may be waiting in the store.
        self._answering = store.clone()
        # What a rank that asked has found; kept here, since the store may be gone when this rank asks.
        self._told: list[int] = []
        threading.Thread(target=self._answer_when_asked, name="roll-call", daemon=True).start()

    def missing_ranks(self) -> list[int]:
        """Ask, and return the ranks that are dead or do not answer within a few seconds.

        A rank that answered and has ended since is not among them: it ended because of another one.
        """
        try:
            missing = self._ask()
            if missing:
                self._store.set(_FOUND, " ".join(map(str, missing)))
        except RuntimeError:  # as torch.distributed raises when whoever holds the store is gone
            if self._told:
                return self._told
            return self._peers.dead_ranks() if _launcher_holds_store() else [0]
        return missing

    def linger(self) -> None:
        """Before this process ends after a failure: where it holds the store, let the others learn why."""
        if self._rank != 0 or _launcher_holds_store():
            return
        told_by = time.monotonic() + (_TELL_SECONDS if self._store.check([_FOUND]) else _LINGER_SECONDS)
        while time.monotonic() < told_by and not self._all_know():
            time.sleep(_POLL_SECONDS / 5)

    def _ask(self) -> list[int]:
        deadline = time.monotonic() + max(_PATIENCE_SECONDS, 2 * self._poll_seconds)
        seen_dead_since: float | None = None
        self._store.set(_ASKED, b"1")
        self._store.set(self._answer_of(self._rank), b"1")
        while True:
            silent = [rank for rank in range(self._world_size) if not self._store.check([self._answer_of(rank)])]
            dead = [rank for rank in silent if rank in self._peers.ended_ranks()]
            now = time.monotonic()
            if not silent:
                return []
            seen_dead_since = (seen_dead_since or now) if dead else None
            if seen_dead_since is not None and now - seen_dead_since > _SEEN_DEAD_SECONDS:
                return dead
            if now > deadline:
                return silent
            time.sleep(_POLL_SECONDS / 5)

    def _answer_when_asked(self) -> None:
        try:
            self._await(_ASKED)
            self._answering.set(self._answer_of(self._rank), b"1")
            self._await(_FOUND)
            self._told = [int(rank) for rank in self._answering.get(_FOUND).split()]
            self._answering.set(self._receipt_of(self._rank), b"1")
        except RuntimeError:  # the store is gone, and with it everybody who might ask
            return

    def _await(self, key: str) -> None:
        while not self._answering.check([key]):
            time.sleep(self._poll_seconds)

    def _all_know(self) -> bool:
        gone = {*self._told, *self._peers.ended_ranks()}
        return all(self._store.check([self._receipt_of(rank)]) for rank in range(self._world_size) if rank not in gone)

    def _answer_of(self, rank: int) -> str:
        return f"{_ASKED}/{rank}"

    def _receipt_of(self, rank: int) -> str:
        return f"{_FOUND}/{rank}"


def _launcher_holds_store() -> bool:
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


_IN_THIS_PROCESS: list[RollCall] = []


def begin_roll_call(process_group: dist.ProcessGroup) -> None:
    """Make this process answer, and ask, from now on; all ranks of the job call this together."""
    if dist.get_world_size(process_group) > 1 and not _IN_THIS_PROCESS:
        _IN_THIS_PROCESS.append(RollCall(process_group))


def roll_call() -> RollCall | None:
    """Return this process's roll call; None where nobody has begun one."""
    return _IN_THIS_PROCESS[0] if _IN_THIS_PROCESS else None


def culprits(ranks: list[int]) -> str:
    """Return what to say of `ranks` that are missing, or of none."""
    if not ranks:
        return "no rank has died, so one is stuck: look for the first error of all ranks"
    return f"rank {', '.join(map(str, ranks))} {'has' if len(ranks) == 1 else 'have'} died"
