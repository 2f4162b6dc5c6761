"""Runs a written artifact: its environment, its command, its log, and the error that a bad end means."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gradwire.artifact import Artifact, command_settings, command_words
from gradwire.documents.plan_schema import World
from gradwire.launch.diagnose import diagnose, read_failure
from gradwire.launch.environment import run_environment
from gradwire.launch.process import Ended, run

LOG_FILE = "launch.log"
ERROR_FILE = "error.json"
MEASUREMENT_FILE = "measurement.json"

# Left by an earlier run in the same folder, they would be taken for this one's.
_RESULTS = (LOG_FILE, ERROR_FILE, MEASUREMENT_FILE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A written artifact, where it lies, and the world it is for."""

    artifact: Artifact
    folder: Path
    world: World


def run_job(
    job: Job, *, shell: Mapping[str, str], cores: int, timeout_seconds: float | None, echo: BinaryIO | None
) -> Ended:
    """Run `job` to its end; its output goes to launch.log in its folder and, live, to `echo`.

    `shell` is the environment it inherits, `cores` what the ranks on cpu share.
    Raises RunFailed, or the error that a rank left word of.
    """
    for name in _RESULTS:
        (job.folder / name).unlink(missing_ok=True)
    error_file = job.folder.resolve() / ERROR_FILE
    environment = run_environment(
        shell,
        job.artifact.environment,
        device=job.world.device,
        processes_per_node=job.world.processes_per_node,
        cores=cores,
        error_file=error_file,
    )
    ended = run(
        command_words(job.artifact, job.folder, _free_ports(job.artifact)),
        environment=environment,
        log=job.folder / LOG_FILE,
        timeout_seconds=timeout_seconds,
        echo=echo,
    )
    failure = read_failure(error_file)
    if ended.exit_code or ended.timed_out or failure is not None:
        raise diagnose(ended, failure, timeout_seconds=timeout_seconds)
    return ended


def _free_ports(artifact: Artifact) -> dict[str, str]:
    return {setting.variable: str(_free_port()) for setting in command_settings(artifact) if setting.is_free_port}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
