"""The command's entry, and the only place where an error becomes an exit code."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from types import TracebackType

from gradwire.cli.output import report_error
from gradwire.cli.parser import parse
from gradwire.errors import GradwireError
from gradwire.reading import explain_refused_path


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (without the program's name) and return its exit code: those in --help, and more.

    130: interrupted; 141: the reader of the output went away; 1: the output cannot be written. A bug keeps its
    traceback.
    """
    if argv is None:
        sys.excepthook = _report_bug
    _open_streams()
    # A closed one is None, whatever its type says.
    if vars(sys)["stdout"] is None:
        print("gradwire: stdout is closed, and the result goes there", file=sys.stderr)
        return 1
    try:
        try:
            return _run(list(sys.argv[1:] if argv is None else argv))
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        print("gradwire: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _drop_output()
        return 141
    except OSError as error:
        if not _is_output_stuck():
            raise
        _drop_output()
        print(f"gradwire: cannot write to stdout: {error.strerror}", file=sys.stderr)
        return 1


def _run(words: Sequence[str]) -> int:
    try:
        arguments = parse(words)
        exit_code: int = arguments.run(arguments)
    except GradwireError as error:
        report_error(error, as_json=_wants_json(words))
        return error.exit_code
    except OSError as error:
        refused = explain_refused_path(error)
        if refused is None:
            raise
        report_error(refused, as_json=_wants_json(words))
        return refused.exit_code
    return exit_code


def _open_streams() -> None:
    """Make what a stream cannot encode come out escaped, and a closed stderr swallow what is said."""
    if vars(sys)["stderr"] is None:
        # Takes the number that is free, so that no file of a run gets it.
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _is_output_stuck() -> bool:
    """Return whether stdout is what failed: one more line fails too."""
    try:
        print()
        sys.stdout.flush()
    except OSError:
        return True
    return False


def _drop_output() -> None:
    # Python would complain again when it flushes at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _wants_json(words: Sequence[str]) -> bool:
    own = words[: words.index("--")] if "--" in words else words
    return "--json" in own


def _report_bug(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
    sys.__excepthook__(kind, value, trace)
    print(
        "gradwire: this is a bug; please report it with the lines above and `gradwire doctor --json`", file=sys.stderr
    )
