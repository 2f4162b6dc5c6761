"""Keys and values as messages show them: short, on one line, nothing that a terminal would act on."""

from __future__ import annotations

import json
import re
from typing import Any

from gradwire.recipe.document import Path

_PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]{0,60}", re.ASCII)
_LONGEST = 60


def show_value(value: Any) -> str:
    """Return `value` as JSON in ASCII, cut to 60 characters."""
    text = json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def show_key(key: str | int) -> str:
    """Return a key as it stands, or quoted where it is not a plain word."""
    return str(key) if isinstance(key, int) or _PLAIN_KEY.fullmatch(key) else show_value(key)


def show_path(path: Path) -> str:
    """Return the dotted path."""
    return ".".join(show_key(part) for part in path)
