"""Runs a command in namespaces of its own, which the kernel takes away with everything in them when it ends."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

# The kernel kills the command when this process dies, however it dies, and kills all of the command's descendants
# with it, because it is the first process of its process namespace. Interfaces, qdiscs and names below /run belong to
# the network and mount namespaces, which go with their last process: there is nothing to clean up and nothing to find.
_WRAPPER = (
    ("setpriv", "--pdeathsig", "KILL", "unshare"),
    ("--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"),
)
_AS_OTHER_USER = ("--user", "--map-root-user")
_TOOLS = ("setpriv", "unshare", "nsenter", "mount", "ip", "tc")
_SYSTEM_PATHS = "/usr/sbin:/sbin"
_PATIENCE_SECONDS = 10.0
_OWN_RUN = ("sh", "-c", 'mount -t tmpfs tmpfs /run && exec "$@"', "sh")
_TRIAL = """set -e
ip netns add trial
ip link add port0 type veth peer name eth0 netns trial
ip link add switch0 type bridge
tc qdisc add dev port0 root tbf rate 100mbit burst 64kb latency 50ms
"""


def tool_environment() -> dict[str, str]:
    """Return the environment with the folders where `ip` and `tc` live, which a plain user's PATH may lack."""
    return {**os.environ, "PATH": f"{os.environ.get('PATH', os.defpath)}:{_SYSTEM_PATHS}"}


def isolation() -> tuple[tuple[str, ...] | None, str]:
    """Return the words to put before a command so that it runs isolated, or None, and why.

    Root needs no user namespace; anyone else, and a root that lacks the privilege, gets one where the system allows it.
    """
    path = tool_environment()["PATH"]
    missing = [tool for tool in _TOOLS if shutil.which(tool, path=path) is None]
    if missing:
        return None, f"missing: {', '.join(missing)} (Debian: apt install iproute2 util-linux)"
    start, namespaces = _WRAPPER
    ways = [(*start, *namespaces, *_OWN_RUN), (*start, *_AS_OTHER_USER, *namespaces, *_OWN_RUN)]
    reason = ""
    for wrapper in ways[0 if os.geteuid() == 0 else 1 :]:
        trial = subprocess.run(
            [*wrapper, "sh", "-c", _TRIAL], capture_output=True, text=True, timeout=20, env=tool_environment()
        )
        if trial.returncode == 0:
            return wrapper, ""
        reason = trial.stderr.strip().splitlines()[-1] if trial.stderr.strip() else f"exit {trial.returncode}"
    return None, reason


def run_isolated(wrapper: Sequence[str], words: Sequence[str]) -> int:
    """Run `words` behind `wrapper` and return the exit code; nothing of it survives this process.

    On Ctrl-C the command, which the terminal interrupts too, has ten seconds to end by itself.
    """
    process = subprocess.Popen([*wrapper, *words], env=tool_environment())
    try:
        return process.wait()
    except KeyboardInterrupt:
        try:
            return process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            return 130
    finally:
        process.kill()
        process.wait()
