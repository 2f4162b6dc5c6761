"""Starts one torchrun per host and waits for all of them; the first that fails ends the wait."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time

from benchmarks.netlab.job import HOSTS_VARIABLE
from benchmarks.netlab.network import Host

_PORT = 29500
_POLL_SECONDS = 0.05


def starter_words(hosts: tuple[Host, ...], module: str, arguments: tuple[str, ...]) -> list[str]:
    """Return the command that runs `module` with `arguments` once per host, each a rank of one world."""
    # Addresses inside a namespace are free to choose; over loopback a port must be one that nobody has.
    port = _PORT if hosts[0].prefix else _free_port()
    commands = [
        [
            *host.prefix,
            "env",
            f"GLOO_SOCKET_IFNAME={host.interface}",
            f"{HOSTS_VARIABLE}={host.interface}",
            "OMP_NUM_THREADS=1",
            *(sys.executable, "-m", "torch.distributed.run"),
            *(f"--nnodes={len(hosts)}", f"--node_rank={rank}", "--nproc_per_node=1"),
            *(f"--master_addr={hosts[0].address}", f"--master_port={port}"),
            *("-m", module, *arguments),
        ]
        for rank, host in enumerate(hosts)
    ]
    return [sys.executable, "-m", __name__, json.dumps(commands)]


def main(commands: list[list[str]]) -> int:
    """Run `commands` together; return 0, or the first failing exit code. Whoever started this ends the others."""
    running = [subprocess.Popen(words, stdin=subprocess.DEVNULL) for words in commands]
    while running:
        for process in list(running):
            if process.poll() is None:
                continue
            if process.returncode:
                return 1
            running.remove(process)
        time.sleep(_POLL_SECONDS)
    return 0


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main(json.loads(os.fsdecode(sys.argv[1]))))
