"""What the verbs say: results on stdout, commentary and errors on stderr, JSON where it is asked for."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from gradwire.errors import CannotImport, CannotLower, GradwireError, InvalidRecipe

# What a stranger's file or file name may hold must not steer the terminal.
_HARMLESS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def say(text: str = "") -> None:
    """Print a line of the result."""
    print(text.translate(_HARMLESS))


def note(text: str) -> None:
    """Print a line of commentary."""
    print(text.translate(_HARMLESS), file=sys.stderr, flush=True)


def say_json(document: Any) -> None:
    """Print `document`, plain data, as the whole result."""
    print(json.dumps(document, indent=2, ensure_ascii=False))


def plain(document: Any) -> Any:
    """Return a document (structs, nested) as plain data for JSON."""
    import msgspec

    return msgspec.to_builtins(document)


def report_error(error: GradwireError, *, as_json: bool) -> None:
    """Print what went wrong on stderr and, with --json, as one object on stdout, where the result would have been."""
    if as_json:
        say_json({"error": error_document(error)})
    if isinstance(error, InvalidRecipe):
        count = len(error.violations)
        note(_readable(f"{error}\n{count} problem{'' if count == 1 else 's'}; nothing was written or started"))
    else:
        note(_readable(f"gradwire: {error}"))


def _readable(text: str) -> str:
    """Return lines that a terminal need not break within words; whole lines where a program reads them."""
    if not sys.stderr.isatty():
        return text
    lines = []
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        lines.append(wrapped(line.lstrip(), indent=indent + 4, first=" " * indent))
    return "\n".join(lines)


def error_document(error: GradwireError) -> dict[str, Any]:
    """Return {"kind", "exit_code", "message", "violations", "refused"} of an error.

    `violations` are an InvalidRecipe's and `refused` a CannotLower's, or a CannotImport's with one message each; empty
    for every other kind.
    """
    violations = error.violations if isinstance(error, InvalidRecipe) else []
    refused: list[Any] = list(error.refused) if isinstance(error, CannotLower) else []
    if isinstance(error, CannotImport):
        refused = [{"message": text} for text in error.refused_keys]
    return {
        "kind": type(error).__name__,
        "exit_code": error.exit_code,
        "message": str(error),
        "violations": [plain(violation) for violation in violations],
        "refused": [plain(each) for each in refused],
    }


def screen_width() -> int:
    """Return the columns to fill: the terminal's, at most 100 and 80 where there is none."""
    import shutil

    return min(shutil.get_terminal_size((80, 24)).columns, 100)


def wrapped(text: str, *, indent: int = 0, first: str | None = None) -> str:
    """Return `text` wrapped to the screen and indented; `first` replaces the first line's indentation."""
    space = " " * indent
    return textwrap.fill(
        text,
        width=screen_width(),
        initial_indent=space if first is None else first,
        subsequent_indent=space,
        break_long_words=False,
        break_on_hyphens=False,
    )


def table(rows: Sequence[tuple[str, str]], *, indent: int = 2) -> str:
    """Return two aligned columns, the second one wrapped to the screen."""
    width = max((len(left) for left, _ in rows), default=0)
    gap = indent + width + 2
    return "\n".join(
        wrapped(right, indent=gap, first=f"{' ' * indent}{left:<{width}}  ").rstrip() for left, right in rows
    )


def shown(value: Any) -> str:
    """Return a recipe value as a recipe would write it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, dict)):
        return json.dumps(value)
    return str(value)
