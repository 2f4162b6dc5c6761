"""What a user probably meant by an unknown key or a wrong value."""

from __future__ import annotations

import difflib
from typing import Any

from gradwire.recipe.document import Path
from gradwire.recipe.schema_index import children, homes
from gradwire.recipe.show import show_path, show_value
from gradwire.recipe.vocabulary import NOTES, OPTIONS, OTHER_VALUES, RECIPE_PATH

_CLOSE = 0.75


def hint_for_key(path: Path) -> str:
    """Return what to write instead of the unknown key at the end of `path`, as a short clause."""
    *above, last = path
    parent, key = tuple(above), str(last)
    siblings = children(parent)
    word = key.lower().replace("-", "_")
    if word in OPTIONS:
        return OPTIONS[word]
    odd = next((letter for letter in key if letter.isspace() and not letter.isascii()), None)
    if odd is not None:
        return f"it holds U+{ord(odd):04X}, a blank that YAML takes for a letter; type a space in its place"
    if word in siblings:
        return f"did you mean {word}?"
    if word in homes():
        owners = [show_path(home[:-1]) or "the top level" for home in homes()[word]]
        return f"{word} belongs under {' or '.join(owners)}"
    if word in RECIPE_PATH:
        note = f": {NOTES[word]}" if word in NOTES else ""
        return f"the recipe's word is {_relative(RECIPE_PATH[word], parent)}{note}"
    close = difflib.get_close_matches(word, siblings, n=1, cutoff=_CLOSE)
    if close:
        return f"did you mean {close[0]}?"
    elsewhere = difflib.get_close_matches(word, homes(), n=1, cutoff=_CLOSE)
    if elsewhere:
        return f"did you mean {show_path(homes()[elsewhere[0]][0])}?"
    foreign = difflib.get_close_matches(word, RECIPE_PATH, n=1, cutoff=_CLOSE)
    if foreign:
        return f"did you mean {_relative(RECIPE_PATH[foreign[0]], parent)}?"
    loose = difflib.get_close_matches(word, siblings, n=1, cutoff=0.6)
    if loose:
        return f"did you mean {loose[0]}?"
    return f"known here: {', '.join(siblings)}"


def hint_for_choice(path: Path, value: Any, choices: list[str]) -> str | None:
    """Return the one of `choices` that `value` probably stands for, as a short clause, or None."""
    word = str(value).lower() if isinstance(value, str | int) else show_value(value)
    known = OTHER_VALUES.get(show_path(path), {}).get(word)
    if known:
        return f"did you mean {known}?"
    if "none" in choices and word in ("no", "off", "false", "null"):
        return "did you mean none?"
    by_word = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(word, by_word, n=1, cutoff=0.6)
    return f"did you mean {by_word[close[0]]}?" if close else None


def _relative(dotted: str, parent: Path) -> str:
    section, _, name = dotted.rpartition(".")
    return name if section == show_path(parent) else dotted
