"""The command's entry, and the only place where an error becomes an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import TracebackType

from gradwire.cli.output import report_error
from gradwire.cli.parser import parse
from gradwire.errors import GradwireError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (without the program's name) and return its exit code: those in --help, and more.

    130: interrupted; 141: the reader of the output went away. A bug keeps its traceback.
    """
    if argv is None:
        sys.excepthook = _report_bug
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        arguments = parse(words)
        exit_code: int = arguments.run(arguments)
        sys.stdout.flush()
    except GradwireError as error:
        report_error(error, as_json=_wants_json(words))
        return error.exit_code
    except KeyboardInterrupt:
        print("gradwire: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return exit_code


def _wants_json(words: Sequence[str]) -> bool:
    own = words[: words.index("--")] if "--" in words else words
    return "--json" in own


def _report_bug(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
    sys.__excepthook__(kind, value, trace)
    print(
        "gradwire: this is a bug; please report it with the lines above and `gradwire doctor --json`", file=sys.stderr
    )
