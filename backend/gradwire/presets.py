"""The recipes that ship: their names, their files and one line on each, found without parsing any."""

from __future__ import annotations

import json
import re
from pathlib import Path

from gradwire.errors import UsageError
from gradwire.resources import presets_folder

_SUFFIX = ".yaml"
_SUMMARY = re.compile(r"^summary: *(.+?) *$", re.MULTILINE)


def preset_names() -> list[str]:
    """Return the name of every preset, sorted: its path below the presets' folder without the suffix."""
    folder = presets_folder()
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob(f"*{_SUFFIX}"))


def preset_path(name: str) -> Path:
    """Return the file of the preset `name`; raises UsageError for a name that is no preset's, a path included."""
    names = preset_names()
    # Looked up, never joined unseen: `../` and absolute paths are not in the list.
    if name in names:
        return presets_folder() / f"{name}{_SUFFIX}"
    shown = json.dumps(name if len(name) <= 60 else f"{name[:57]}...")
    inside = [known for known in names if known.startswith(f"{name}/")]
    if inside:
        raise UsageError(f"{shown} is a group of presets: {', '.join(inside)}")
    if ".." in name.split("/") or name.startswith("/"):
        raise UsageError(f"{shown} is neither a preset's name, which has no '..' and no leading '/', nor a file")
    import difflib

    # "h100-8" is the beginning of two names and looks most like a third.
    close = [known for known in names if name and known.startswith(name.lower())]
    close = close or difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else "`gradwire presets` lists them"
    raise UsageError(f"{shown} is neither a preset nor a file ({hint})")


def preset_summaries() -> list[tuple[str, str]]:
    """Return (name, summary) of every preset, sorted by name.

    A preset writes its summary unquoted on one line, so that no YAML parser is needed for the list.
    """
    summaries = []
    for name in preset_names():
        found = _SUMMARY.search(preset_path(name).read_text(encoding="utf-8"))
        summaries.append((name, found[1] if found else ""))
    return summaries
