"""Where runs go when no --out is given."""

from __future__ import annotations

from pathlib import Path

RUNS = Path("runs")


def plain_name(name: str) -> str:
    """Return a recipe's name as one word of a path: `cpu/ddp` is `cpu-ddp`."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name).strip(".") or "recipe"


def fresh_folder(stem: str) -> Path:
    """Return runs/STEM, or runs/STEM.2, .3, ... where that exists: earlier runs are kept."""
    folder, number = RUNS / stem, 2
    while folder.exists():
        folder, number = RUNS / f"{stem}.{number}", number + 1
    return folder
