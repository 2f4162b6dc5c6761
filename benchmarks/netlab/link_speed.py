"""Measures a link with one raw TCP connection: `serve` on one host, `send` on the other."""

from __future__ import annotations

import fcntl
import json
import socket
import statistics
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass
from typing import cast

from benchmarks.netlab.network import Host

_ROUND_TRIPS = 50
_CHUNK_BYTES = 1 << 20
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkSpeed:
    """A raw TCP connection's payload rate in bits per second, and the median round trip of one byte in seconds."""

    bits_per_second: float
    round_trip_seconds: float


def measure_link(sender: Host, receiver: Host, *, payload_bytes: int) -> LinkSpeed:
    """Return what one connection from `sender` to `receiver` carries; starts and ends a process on each."""
    program = (sys.executable, "-m", __name__)
    server = subprocess.Popen(
        [*receiver.prefix, *program, "serve", receiver.address, str(payload_bytes)], stdout=subprocess.PIPE, text=True
    )
    try:
        port = cast("str", server.stdout and server.stdout.readline()).strip()
        client = subprocess.run(
            [*sender.prefix, *program, "send", receiver.address, port, str(payload_bytes)],
            check=True,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
        )
        answer, _ = server.communicate(timeout=_PATIENCE_SECONDS)
    finally:
        server.kill()
        server.wait()
    return LinkSpeed(bits_per_second=float(answer), round_trip_seconds=float(json.loads(client.stdout)))


def serve(address: str, payload_bytes: int) -> None:
    """Print the port; echo single bytes, then receive the payload and print its rate without the first fifth."""
    with socket.create_server((address, 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        listening.settimeout(_PATIENCE_SECONDS)
        connection, _ = listening.accept()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(_ROUND_TRIPS):
            connection.sendall(connection.recv(1))
        buffer = bytearray(_CHUNK_BYTES)
        received, counted_from, since = 0, 0, 0.0
        while count := connection.recv_into(buffer):
            received += count
            # The token bucket starts full and TCP starts slowly: neither is the link's speed.
            if not since and received >= payload_bytes // 5:
                # The clock first: what arrives between the two readings then makes the link look slower, not faster.
                since = time.perf_counter()
                counted_from = received + _waiting_bytes(connection)
        print((received - counted_from) * 8 / (time.perf_counter() - since))
        connection.sendall(b".")


def _waiting_bytes(connection: socket.socket) -> int:
    """Return what has arrived and was not yet read, which on a busy machine is much."""
    (waiting,) = struct.unpack("i", fcntl.ioctl(connection, termios.FIONREAD, bytes(4)))
    return int(waiting)


def send(address: str, port: int, payload_bytes: int) -> None:
    """Print the median round trip of one byte in seconds, after sending the payload."""
    with socket.create_connection((address, port), timeout=_PATIENCE_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        round_trips = []
        for _ in range(_ROUND_TRIPS):
            started = time.perf_counter()
            connection.sendall(b".")
            connection.recv(1)
            round_trips.append(time.perf_counter() - started)
        chunk = bytes(_CHUNK_BYTES)
        for offset in range(0, payload_bytes, _CHUNK_BYTES):
            connection.sendall(chunk[: payload_bytes - offset])
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)
    print(json.dumps(statistics.median(round_trips)))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", address, payload]:
            serve(address, int(payload))
        case ["send", address, port, payload]:
            send(address, int(port), int(payload))
        case _:
            sys.exit("usage: link_speed serve ADDRESS BYTES | send ADDRESS PORT BYTES")
