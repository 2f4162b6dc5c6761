"""Makes the environment of a launched run: the artifact's variables over the shell's, no leftovers of other jobs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gradwire.launch.probe import search_path

ERROR_FILE_VARIABLE = "GRADWIRE_ERROR_FILE"
"""The same name as in gradwire.train.failure, which writes the file; the two packages don't import each other."""

# As in launch.sh: a person's own value wins, because it changes the speed and not what is trained.
_SHELL_WINS = ("OMP_NUM_THREADS",)
_LEFTOVERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
_LEFTOVER_PREFIXES = ("TORCHELASTIC_", "ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_")


def run_environment(shell: Mapping[str, str], artifact: Mapping[str, str], *, error_file: Path) -> dict[str, str]:
    """Return the environment of the launcher: the artifact's variables over the shell's, but for the thread count.

    Left out of the shell's: rank and address variables and Accelerate's own ones, which would override the generated
    configuration from outside. Output is unbuffered, so that it is seen while it happens.
    """
    kept = {name: value for name, value in shell.items() if not _is_leftover(name)}
    ours = {name: value for name, value in artifact.items() if name not in _SHELL_WINS or not shell.get(name)}
    return {
        "PYTHONUNBUFFERED": "1",
        **kept,
        "PATH": search_path(shell),
        **ours,
        ERROR_FILE_VARIABLE: str(error_file),
    }


def _is_leftover(name: str) -> bool:
    return name in _LEFTOVERS or name.startswith(_LEFTOVER_PREFIXES)
