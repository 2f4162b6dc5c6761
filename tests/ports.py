"""Ports for tests whose processes must be told where to meet."""

from __future__ import annotations

import random
import socket
from contextlib import suppress


def free_port() -> int:
    """Return a port at which nobody listens, and that the system gives to nobody who asks for just any port.

    The system hands out ports from 32768 on: one of those may be gone by the time that a launcher listens there.
    """
    for port in random.SystemRandom().sample(range(20_000, 32_768), 100):
        with socket.socket() as opened, suppress(OSError):
            opened.bind(("127.0.0.1", port))
            return port
    raise AssertionError("not one of 100 ports is free")
