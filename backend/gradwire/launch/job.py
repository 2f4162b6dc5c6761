"""Runs a written artifact: its environment, its command, its log, and the error that a bad end means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import BinaryIO

from gradwire.artifact import Artifact, command_settings, command_words
from gradwire.launch.diagnose import diagnose, read_failure
from gradwire.launch.environment import run_environment
from gradwire.launch.probe import free_port
from gradwire.launch.process import Ended, run
from gradwire.measure.steps import STEPS_FILE

LOG_FILE = "launch.log"
ERROR_FILE = "error.json"
MEASUREMENT_FILE = "measurement.json"

# Left by an earlier run in the same folder, they would be taken for this one's.
_RESULTS = (MEASUREMENT_FILE, STEPS_FILE)


def log_name(node_rank: int) -> str:
    """Return the log's name on a machine of the job: all of them may share the folder."""
    return _name_on(LOG_FILE, node_rank)


def run_artifact(
    artifact: Artifact,
    folder: Path,
    *,
    shell: Mapping[str, str],
    timeout_seconds: float | None,
    echo: BinaryIO | None,
    more_words: Sequence[str] = (),
    node_rank: int = 0,
) -> Ended:
    """Run `artifact`, written to `folder`, to its end; its output goes to `log_name` there and, live, to `echo`.

    `more_words` follow the command's own. `shell` is the environment that it inherits. Machines of one job may share
    the folder: the results in it are those of the first, and each has a log of its own. Raises RunFailed, or the
    error that a rank left word of.
    """
    log, error_file = folder / log_name(node_rank), folder.resolve() / _name_on(ERROR_FILE, node_rank)
    # A machine that comes late must not take away what the first one has written by then.
    for left in (log, error_file, *(folder / name for name in _RESULTS if node_rank == 0)):
        left.unlink(missing_ok=True)
    ended = run(
        [*command_words(artifact, folder, _free_ports(artifact)), *more_words],
        environment=run_environment(shell, artifact.environment, error_file=error_file),
        log=log,
        timeout_seconds=timeout_seconds,
        echo=echo,
    )
    failure = read_failure(error_file)
    if ended.exit_code or ended.timed_out or failure is not None:
        raise diagnose(ended, failure, timeout_seconds=timeout_seconds)
    return ended


def _name_on(file: str, node_rank: int) -> str:
    path = PurePath(file)
    return file if node_rank == 0 else f"{path.stem}-node{node_rank}{path.suffix}"


def _free_ports(artifact: Artifact) -> dict[str, str]:
    return {setting.variable: str(free_port()) for setting in command_settings(artifact) if setting.is_free_port}
