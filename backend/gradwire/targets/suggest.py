"""What a key that the library does not know was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from gradwire.targets.schema import Spec, known_paths
from gradwire.targets.tree import joined

_COMMENT_STARTS = ("_", "$", "#", "//", "comment", "note", "description")


def is_comment(name: str) -> bool:
    """Whether a key looks like a remark that its author knows to be ignored."""
    return name.lower().startswith(_COMMENT_STARTS)


def suggestion(kind: str, section: Spec, section_path: str, name: str) -> tuple[str | None, str]:
    """The key that was meant, where one is clear, and the fix in words.

    A near miss in the same section comes first, then the same name in another section or in the other file.
    """
    renamed = section.get("x-renamed", {}).get(name)
    if renamed:
        return renamed, f"write {renamed}"
    hint: str | None = section.get("x-hints", {}).get(name)
    if hint:
        return None, hint
    near = near_miss(name, section["properties"])
    if near:
        return near, f"write {near}"
    here = joined(section_path, name)
    elsewhere = [path for path in known_paths(kind).get(name, ()) if path != here]
    if elsewhere:
        return None, f"it belongs at {' or '.join(elsewhere[:2])}"
    other = "accelerate" if kind == "deepspeed" else "deepspeed"
    paths = known_paths(other).get(name, ())
    if paths:
        what = "an Accelerate configuration file" if other == "accelerate" else "a DeepSpeed JSON"
        return None, f"it is a key of {what} ({paths[0]}); move it there"
    far = near_miss(name, known_paths(kind))
    if far:
        return None, f"did you mean {known_paths(kind)[far][0]}?"
    return None, "remove it, or put the setting where the program that reads it looks"


def near_miss(name: str, known: Iterable[str]) -> str | None:
    """The known name that a misspelt one is closest to, or None."""
    folded = {each.lower().replace("-", "_"): each for each in reversed(list(known))}
    wanted = name.lower().replace("-", "_").strip()
    if wanted in folded:
        return folded[wanted]
    close = get_close_matches(wanted, folded, n=1, cutoff=0.8)
    return folded[close[0]] if close else None
