"""Makes the environment of a launched run: the artifact's variables over the shell's, no leftovers of other jobs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gradwire.launch.probe import search_path

ERROR_FILE_VARIABLE = "GRADWIRE_ERROR_FILE"
"""The same name as in gradwire.train.failure, which writes the file; the two packages don't import each other."""

_LEFTOVERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
_LEFTOVER_PREFIXES = ("TORCHELASTIC_", "ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_")


def run_environment(
    shell: Mapping[str, str],
    artifact: Mapping[str, str],
    *,
    device: str,
    processes_per_node: int,
    cores: int,
    error_file: Path,
) -> dict[str, str]:
    """Return the environment of the launcher.

    Left out of the shell's: rank and address variables and Accelerate's own ones, which would override the generated
    configuration from outside. Added where neither says otherwise: unbuffered output and, on cpu, an OMP_NUM_THREADS
    that shares the `cores` between the ranks of this machine (torch's default gives every rank all of them).
    """
    environment = {name: value for name, value in shell.items() if not _is_leftover(name)}
    environment["PATH"] = search_path(shell)
    environment.setdefault("PYTHONUNBUFFERED", "1")
    if device == "cpu":
        environment.setdefault("OMP_NUM_THREADS", str(max(1, cores // processes_per_node)))
    return {**environment, **artifact, ERROR_FILE_VARIABLE: str(error_file)}


def _is_leftover(name: str) -> bool:
    return name in _LEFTOVERS or name.startswith(_LEFTOVER_PREFIXES)
