"""Writes an artifact: the frozen files of a lowered recipe and the exact command that starts it."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

import msgspec
from msgspec import structs

from gradwire.documents.lowering_schema import LoweringReport, ParityCheck, Reread
from gradwire.errors import UsageError
from gradwire.reading import read_regular

PLAN_FILE = "plan.json"
REPORT_FILE = "lowering.json"
LAUNCH_FILE = "launch.sh"
ACCELERATE_FILE = "accelerate.yaml"
DEEPSPEED_FILE = "deepspeed.json"
TRAINER_FILE = "training_arguments.json"

# Files that a lowering to another backend may have left in the same folder.
_TARGET_FILES = frozenset({ACCELERATE_FILE, DEEPSPEED_FILE, TRAINER_FILE, "hostfile"})

# A person's own value of these wins over ours; every other variable decides what is trained.
_OVERRIDABLE_VARIABLES = frozenset({"OMP_NUM_THREADS"})

_LARGEST_REPORT = 4 * 2**20
# As `gradwire.launch.probe.free_port`, which says why there.
_FREE_PORT_PROGRAM = (
    "import random, socket; print(next(port for port in random.sample(range(20000, 32768), 100) "
    'if socket.socket().connect_ex(("127.0.0.1", port))))'
)


@dataclass(frozen=True, kw_only=True, slots=True)
class OutFile:
    """A word of the command that is a file of the output folder."""

    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """A word of the command that differs between machines or runs, with the value that holds unless it is set.

    `variable` is the environment variable that replaces `default` in launch.sh; `scheduler_variable` is one that a
    job scheduler sets, which counts after it. With `is_free_port`, launch.sh takes a free port of this machine when the
    variable is unset, so that two runs on one machine do not clash.
    """

    variable: str
    default: str
    scheduler_variable: str | None = None
    is_free_port: bool = False


Word = str | OutFile | Setting


@dataclass(frozen=True, kw_only=True, slots=True)
class Artifact:
    """The files of one lowering by name, the command that uses them, and the report on every recipe field.

    `files` holds every file that `write_artifact` writes. `environment` is what the command needs to be right.
    """

    files: Mapping[str, str]
    command: tuple[Word, ...]
    environment: Mapping[str, str]
    report: LoweringReport


def build_artifact(
    *,
    plan_text: str,
    target_files: Mapping[str, str],
    command: tuple[Word, ...],
    environment: Mapping[str, str],
    report: LoweringReport,
) -> Artifact:
    """Return the artifact of a plan and its target's files; `report.files` and `report.command` are filled in here."""
    files = {PLAN_FILE: plan_text, **target_files, LAUNCH_FILE: _launch_script(command, environment)}
    report = structs.replace(
        report,
        files=sorted([*files, REPORT_FILE]),
        environment=dict(sorted(environment.items())),
        command=[_relative_word(word) for word in command],
    )
    files[REPORT_FILE] = document_text(report)
    return Artifact(files=dict(sorted(files.items())), command=command, environment=environment, report=report)


def with_reread(artifact: Artifact, reread: Reread) -> Artifact:
    """Return `artifact` with what the target's own loader read back in its report."""
    report = structs.replace(artifact.report, reread=reread)
    return replace(artifact, files={**artifact.files, REPORT_FILE: document_text(report)}, report=report)


def with_parity(artifact: Artifact, parity: ParityCheck | None) -> Artifact:
    """Return `artifact` with what is known of this backend training as others do in its report."""
    report = structs.replace(artifact.report, parity=parity)
    return replace(artifact, files={**artifact.files, REPORT_FILE: document_text(report)}, report=report)


def document_text(document: Any) -> str:
    """Return a generated document as JSON text: sorted keys, two-space indent, newline at the end."""
    return msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=2).decode() + "\n"


def command_words(artifact: Artifact, folder: PurePath, settings: Mapping[str, str] | None = None) -> list[str]:
    """Return the launch command's argv with the files under `folder`.

    `settings` replaces the defaults of the command's settings by variable name (`command_settings` lists them).
    """
    chosen = settings or {}
    words = []
    for word in artifact.command:
        match word:
            case OutFile(name=name):
                words.append(str(folder / name))
            case Setting(variable=variable, default=default):
                words.append(chosen.get(variable, default))
            case str():
                words.append(word)
    return words


def command_settings(artifact: Artifact) -> tuple[Setting, ...]:
    """Return the words of the command that may be chosen at the start: node rank, rendezvous, a free port."""
    return tuple(word for word in artifact.command if isinstance(word, Setting))


def command_line(artifact: Artifact, folder: PurePath) -> str:
    """Return one quoted shell line: the environment, then the command with its files under `folder`."""
    assignments = [f"{name}={shlex.quote(value)}" for name, value in sorted(artifact.environment.items())]
    return " ".join([*assignments, shlex.join(command_words(artifact, folder))])


def write_artifact(artifact: Artifact, folder: Path) -> None:
    """Write every file of `artifact` into `folder`, all or none; launch.sh becomes executable.

    A new folder appears complete, by one rename. In an existing folder every file is first written beside its target
    and then renamed over it, and the files of an earlier lowering that this one lacks are removed; a file that no
    lowering wrote is neither replaced nor removed.
    Raises UsageError where the folder cannot be used; nothing is left behind then.
    """
    folder = Path(folder)
    try:
        if folder.is_dir():
            # In this order: what another machine of the job puts there meanwhile, its report names before it is there.
            present = [name for name in artifact.files if (folder / name).exists()]
            written = _written_earlier(folder)
            _refuse_blocked_names(artifact, folder, [name for name in present if name not in written])
            _replace_files(artifact, folder)
            for name in (_TARGET_FILES & written) - artifact.files.keys():
                (folder / name).unlink(missing_ok=True)
        # Asked once more: another machine of the job may have made it in between.
        elif (folder.is_symlink() or folder.exists()) and not folder.is_dir():
            raise UsageError(f"{folder}: is not a folder; give --out a new path or an existing folder")
        else:
            _make_parents(folder)
            try:
                _create_folder(artifact, folder)
            except OSError:
                # Another machine of the job, which shares the folder, may have been faster.
                if not folder.is_dir():
                    raise
                _replace_files(artifact, folder)
    except OSError as error:
        raise UsageError(
            f"{folder}: cannot write the files: {error.strerror or error}; give --out a folder that you may write"
        ) from error


def _relative_word(word: Word) -> str:
    match word:
        case OutFile(name=name):
            return name
        case Setting(default=default):
            return default
        case str():
            return word


def _shell_word(word: Word) -> str:
    match word:
        case OutFile(name=name):
            return f'"$here"/{shlex.quote(name)}'
        case Setting(variable=variable):
            return f'"${variable}"'
        case str():
            return shlex.quote(word)


def _launch_script(command: Sequence[Word], environment: Mapping[str, str]) -> str:
    lines = [
        "#!/bin/sh",
        "# Starts the run that this folder describes; further arguments go to the program.",
        "set -eu",
        'here=$(CDPATH="" cd -- "$(dirname -- "$(readlink -f -- "$0")")" && pwd)',
    ]
    for name, value in sorted(environment.items()):
        given = f'"${{{name}:-{value}}}"' if name in _OVERRIDABLE_VARIABLES else shlex.quote(value)
        lines.append(f"export {name}={given}")
    for setting in dict.fromkeys(word for word in command if isinstance(word, Setting)):
        scheduler = f"${{{setting.scheduler_variable}:-}}" if setting.scheduler_variable else ""
        lines.append(f'{setting.variable}="${{{setting.variable}:-{scheduler}}}"')
        fallback = f'"$(python3 -c {shlex.quote(_FREE_PORT_PROGRAM)})"' if setting.is_free_port else None
        lines.append(f'[ -n "${setting.variable}" ] || {setting.variable}={fallback or shlex.quote(setting.default)}')
    lines.append("exec " + " ".join(_shell_word(word) for word in command) + ' "$@"')
    return "\n".join(lines) + "\n"


class _WrittenFiles(msgspec.Struct, frozen=True, kw_only=True):
    files: list[str]


def _written_earlier(folder: Path) -> frozenset[str]:
    """Return the names of the files in `folder` that a lowering wrote, as its report says."""
    try:
        text = read_regular(folder / REPORT_FILE, max_bytes=_LARGEST_REPORT)
        # No more of it than that: another version's report may differ elsewhere.
        return frozenset(msgspec.json.decode(text, type=_WrittenFiles).files)
    except (OSError, msgspec.DecodeError):
        return frozenset()


def _refuse_blocked_names(artifact: Artifact, folder: Path, foreign: Sequence[str]) -> None:
    for name in artifact.files:
        if (folder / name).is_dir():
            raise UsageError(f"{folder / name}: is a folder, but a file of that name is to be written")
    if foreign:
        raise UsageError(
            f"{folder}: {', '.join(foreign)} would be replaced, and no lowering wrote that; "
            "give --out another folder, or move it away"
        )


def _make_parents(folder: Path) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        blocking = next(path for path in (folder.parent, *folder.parent.parents) if path.exists())
        raise UsageError(f"{folder}: {blocking} is not a folder; give --out another path") from None


def _write_file(path: Path, name: str, text: str) -> None:
    mode = 0o777 if name == LAUNCH_FILE else 0o666
    # O_EXCL: a path that somebody else put there, symbolic links included, is never written through.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(text.encode())
        stream.flush()
        os.fsync(stream.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _temporary_name() -> str:
    return f".gradwire-{os.urandom(6).hex()}.tmp"


def _create_folder(artifact: Artifact, folder: Path) -> None:
    staging = folder.parent / _temporary_name()
    staging.mkdir()
    try:
        for name, text in artifact.files.items():
            _write_file(staging / name, name, text)
        _sync_folder(staging)
        staging.rename(folder)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    _sync_folder(folder.parent)


def _replace_files(artifact: Artifact, folder: Path) -> None:
    staged: dict[str, Path] = {}
    try:
        for name, text in artifact.files.items():
            staged[name] = folder / _temporary_name()
            _write_file(staged[name], name, text)
        # The report first: it says whose the others are.
        for name in sorted(staged, key=lambda name: name != REPORT_FILE):
            staged[name].replace(folder / name)
    except BaseException:
        for path in staged.values():
            with suppress(OSError):
                path.unlink(missing_ok=True)
        raise
    _sync_folder(folder)
