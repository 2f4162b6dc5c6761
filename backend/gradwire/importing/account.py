"""Accounts for every key of the imported files, and for every hidden default that the recipe writes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gradwire.importing.entry import Carried, Entry, Outcome, entry_of, entry_of_passed
from gradwire.importing.keeping import Kept
from gradwire.importing.trainer_table import trainer_entries
from gradwire.targets.effective import Effective, Reading
from gradwire.targets.job import Job
from gradwire.targets.tree import walk

Place = tuple[str, int]
"""The file and the offset at which a key stands, or, with -1, the path of what no file says."""


def account(
    job: Job,
    readings: Sequence[Reading],
    carried: Sequence[Carried],
    kept: Sequence[Kept],
    launch_words: Mapping[str, tuple[str | None, str | None]],
) -> tuple[Entry, ...]:
    """Return one entry for each written key and each hidden default, in the order of the files."""
    book = _Book(job)
    for each in kept:
        into = f"backends.{each.section}.{each.effective.path}"
        if each.refused is not None:
            book.add(each.effective, "refused", into=None, note=each.refused)
        else:
            book.add(each.effective, "kept", into=into)
    for item in carried:
        written = [source for source in item.sources if source.member is not None]
        for source in written or item.sources:
            if source.document is None or source.document.kind != "trainer":
                book.add(source, "carried", into=item.path, note=item.note)
    for reading in readings:
        for path, effective in reading.values.items():
            where, note = launch_words.get(path, (None, "lowering comes to the same"))
            if effective.member is not None:
                book.add(effective, "carried", into=where, note=note)
        book.entries.extend(entry_of_passed(each, "idle") for each in reading.idle)
    filled = [each for reading in readings for each in reading.values.values() if each.origin == "filled"]
    entries = [*book.entries, *trainer_entries(job, carried, filled)]
    return tuple(sorted(entries, key=_order))


class _Book:
    """Takes the first thing that is said of each key."""

    def __init__(self, job: Job) -> None:
        self.entries: list[Entry] = []
        self._seen: set[Place] = set()
        self._paths: dict[Place, str] = {
            (document.source, member.start): path
            for document in (job.accelerate, job.deepspeed, job.trainer)
            if document is not None
            for path, member in walk(document.root)
        }

    def add(self, effective: Effective, outcome: Outcome, *, into: str | None, note: str | None = None) -> None:
        place = _place(effective)
        # What is assumed is listed on its own, and what follows from other keys needs no entry.
        if place in self._seen or (effective.member is None and effective.origin in ("assumed", "derived")):
            return
        self._seen.add(place)
        entry = entry_of(effective, outcome, into=into, note=note)
        self.entries.append(replace(entry, path=self._paths.get(place, entry.path)))


def _place(effective: Effective) -> Place:
    if effective.document is None or effective.member is None:
        return effective.path, -1
    return effective.document.source, effective.member.start


def _order(entry: Entry) -> tuple[bool, str, int, int, str]:
    return entry.file is None, entry.file or "", entry.line or 0, entry.column or 0, entry.path
