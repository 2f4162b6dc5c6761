"""What a key that the library does not know was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from gradwire.targets.schema import Spec, Visit, known_paths, spec_at
from gradwire.targets.tree import joined
from gradwire.targets.values import is_written_as_text, types_of

# A name this far below another section has its meaning from there.
_DEEP = 3
_COMMENT_STARTS = ("_", "$", "#", "//", "comment", "note", "description")


def is_comment(name: str) -> bool:
    """Whether a key looks like a remark that its author knows to be ignored."""
    return name.lower().startswith(_COMMENT_STARTS)


def suggestion(kind: str, each: Visit) -> tuple[str | None, str]:
    """The key that was meant, where one is clear, and the fix in words.

    A near miss in the same section comes first, then the same name in another section or in the other file. A key that
    could not hold the value was not meant.
    """
    section, name, value = each.section, each.member.name, each.member.node.data
    renamed = section.get("x-renamed", {}).get(name)
    if renamed:
        return renamed, f"write {renamed}"
    hint: str | None = section.get("x-hints", {}).get(name)
    if hint:
        return None, hint
    near = near_miss(name, section["properties"])
    if near and _could_hold(section["properties"][near], value):
        return near, f"remove it: {near} is written too" if near in each.siblings else f"write {near}"
    elsewhere = _elsewhere(kind, each)
    if elsewhere:
        return None, f"it belongs at {' or '.join(elsewhere[:2])}"
    holding = [path for path in known_paths(kind).get(name, ()) if _could_hold(spec_at(kind, path) or {}, value)]
    if holding:
        holders = sorted({path.rpartition(".")[0] for path in holding} - {"bfloat16"})
        owners = f"it is a key of {' and '.join(holders)}; " if len(holders) <= 3 else ""
        return None, owners + "move it into the section that it is for, or remove it"
    other = "accelerate" if kind == "deepspeed" else "deepspeed"
    paths = known_paths(other).get(name, ()) if _may_be_of_another_file(kind, each) else ()
    if paths:
        what = "an Accelerate configuration file" if other == "accelerate" else "a DeepSpeed JSON"
        return None, f"it is a key of {what} ({paths[0]}); move it there"
    far = near_miss(name, known_paths(kind))
    if (
        far
        and _may_be_of_another_file(kind, each)
        and _could_hold(spec_at(kind, known_paths(kind)[far][0]) or {}, value)
    ):
        return None, f"did you mean {known_paths(kind)[far][0]}?"
    return None, "remove it, or put the setting where the program that reads it looks"


def _elsewhere(kind: str, each: Visit) -> list[str]:
    """The places where a key of this name is known, in the same section at the top if there is one.

    Where many sections have such a key, each for something else, the name alone does not say which was meant; nor
    does it for a key in one section that another one has far below.
    """
    name, value = each.member.name, each.member.node.data
    here = joined(each.section_path, name)
    places = [
        path
        for path in known_paths(kind).get(name, ())
        if path != here and not path.startswith("bfloat16.") and _could_hold(spec_at(kind, path) or {}, value)
    ]
    top = each.section_path.partition(".")[0]
    near = [path for path in places if top and path.startswith(f"{top}.")]
    tops = {path.partition(".")[0] for path in places}
    if near or len(tops) > 1:
        return near or [path for path in places if path.startswith("optimizer.params.")]
    return [path for path in places if not top or path.count(".") < _DEEP]


def _may_be_of_another_file(kind: str, each: Visit) -> bool:
    """Whether a section could be taken for one of the other program's; what is in fsdp_config was meant for FSDP."""
    return kind == "deepspeed" or each.section_path in ("", "deepspeed_config")


def _could_hold(spec: Spec, value: Any) -> bool:
    """Whether a value is at all of a kind that a key holds; numbers and switches may be written as text."""
    kinds = {*types_of(spec)} - {"null"}
    if not kinds or value is None or value == "auto":
        return True
    if isinstance(value, dict | list):
        return ("object" if isinstance(value, dict) else "array") in kinds
    if kinds <= {"object", "array"}:
        return False
    if isinstance(value, str) and kinds <= {"boolean", "integer", "number"}:
        return is_written_as_text(value)
    return True


def near_miss(name: str, known: Iterable[str]) -> str | None:
    """The known name that a misspelt one is closest to, or None."""
    folded = {each.lower().replace("-", "_"): each for each in reversed(list(known))}
    wanted = name.lower().replace("-", "_").strip()
    if wanted in folded:
        return folded[wanted]
    close = get_close_matches(wanted, folded, n=1, cutoff=0.8)
    return folded[close[0]] if close else None
