"""Builds hosts as network namespaces, joined by rate-limited links to one switch; runs inside `isolate`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gradwire.errors import EnvironmentNotFit

LOOPBACK = "lo"
_SUBNET = "10.77.0"
_SWITCH = "switch0"
_NETNS_FOLDER = Path("/run/netns")
_CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")
_MTU_BYTES = 1500
# A bucket that refills for 2 ms lets TBF reach its rate at the kernel's timer resolution: 250 kB at 1 Gb/s.
_BURST_SECONDS = 0.002
# Packets of up to 32 KiB, headers of their segments included, pass the bucket whole: smaller ones would cost more CPU
# time, and a larger bucket would give short messages a head start that a real link does not give.
_SMALLEST_BURST_BYTES = 40 * 1024
_SEGMENTATION_BYTES = 32 * 1024
_QUEUE_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """Where one rank runs: `prefix` are the words that start a command there, `interface` faces the other hosts."""

    name: str
    address: str
    interface: str
    prefix: tuple[str, ...]


def loopback_hosts(count: int) -> tuple[Host, ...]:
    """Return `count` times this machine over its loopback interface, as it is."""
    return tuple(Host(name=f"host{n}", address="127.0.0.1", interface=LOOPBACK, prefix=()) for n in range(count))


@contextmanager
def linked_hosts(count: int, rate_mbit: float, *, congestion_control: str) -> Iterator[tuple[Host, ...]]:
    """Yield `count` hosts on one switch, each link limited to `rate_mbit` Mb/s in both directions.

    They hear nothing but each other. Names are free to choose: `isolate` gives the lab a /run of its own. Raises
    EnvironmentNotFit with what `ip` or `tc` said where a step fails.
    """
    hosts = tuple(
        Host(
            name=f"host{number}",
            address=f"{_SUBNET}.{number + 1}",
            interface="eth0",
            prefix=("nsenter", f"--net={_NETNS_FOLDER}/host{number}", "--"),
        )
        for number in range(count)
    )
    try:
        _run("ip", "link", "add", _SWITCH, "type", "bridge")
        _quiet_up((), _SWITCH)
        for number, host in enumerate(hosts):
            _connect(host, f"port{number}", rate_mbit)
            _run(*host.prefix, "sh", "-c", f'echo "$1" > {_CONGESTION_CONTROL}', "sh", congestion_control)
        yield hosts
    finally:
        # The next rate starts from nothing. Deleting a namespace deletes its half of the pair, and so the other half.
        for host in hosts:
            if (_NETNS_FOLDER / host.name).exists():
                _run("ip", "netns", "del", host.name)
        subprocess.run(["ip", "link", "del", _SWITCH], capture_output=True)


def kernel_congestion_control() -> str:
    """Return the TCP congestion control that new connections get."""
    return _CONGESTION_CONTROL.read_text().strip()


def tbf_words(rate_mbit: float) -> tuple[str, ...]:
    """Return the token bucket filter for a rate in Mb/s, as `tc` spells it."""
    bytes_per_second = rate_mbit * 1e6 / 8
    burst = max(_SMALLEST_BURST_BYTES, round(bytes_per_second * _BURST_SECONDS))
    limit = burst + round(bytes_per_second * _QUEUE_SECONDS)
    return ("tbf", "rate", f"{round(rate_mbit * 1e6)}bit", "burst", f"{burst}b", "limit", f"{limit}b")


def _connect(host: Host, port: str, rate_mbit: float) -> None:
    inside = ("-n", host.name)
    _run("ip", "netns", "add", host.name)
    _run("ip", "link", "add", port, "type", "veth", "peer", "name", host.interface, "netns", host.name)
    _run("ip", "link", "set", port, "master", _SWITCH)
    _run("ip", *inside, "address", "add", f"{host.address}/24", "dev", host.interface)
    _run("ip", *inside, "link", "set", LOOPBACK, "up")
    _quiet_up((), port)
    _quiet_up(inside, host.interface)
    _run("tc", "qdisc", "add", "dev", port, "root", *tbf_words(rate_mbit))
    _run("tc", *inside, "qdisc", "add", "dev", host.interface, "root", *tbf_words(rate_mbit))


def _quiet_up(namespace: Sequence[str], interface: str) -> None:
    """Bring an interface up without IPv6, whose neighbour discovery would stand in the byte counts."""
    _run("ip", *namespace, "link", "set", interface, "addrgenmode", "none", "mtu", str(_MTU_BYTES))
    _run("ip", *namespace, "link", "set", interface, "gso_max_size", str(_SEGMENTATION_BYTES), "up")


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=20)
    if done.returncode:
        raise EnvironmentNotFit(f"{' '.join(words)}: {done.stderr.strip() or f'exit {done.returncode}'}")
