# Generated from the JSON Schemas by `make documents`; never edited.

from __future__ import annotations

from typing import Any, Literal
from msgspec import Struct


class FieldOutcome(Struct, frozen=True, kw_only=True):
    """What became of one recipe field."""

    path: str
    """Dotted path in the recipe."""
    value: Any
    """Its value after overrides and defaults."""
    outcome: Literal["exact", "emulated", "refused", "unused"]
    """exact: means the same there; emulated: reached another way, see the note; refused: cannot be done there (written only under --allow-lossy); unused: the recipe does not ask for it here."""
    carrier: str | None
    """What carries it: file and key, a command-line option, `gradwire.train`, or `gradwire.accelerate.from_recipe`; null when nothing does."""
    note: str | None
    """How it is emulated and what differs, or why it is refused and the nearest thing that can be done."""


class ParityEvidence(Struct, frozen=True, kw_only=True):
    """What one parity.json says of this backend."""

    file: str
    """The parity.json, relative to the folder that `gradwire` ran in."""
    is_same: bool
    """Whether this backend and the others trained the same, within the tolerances of the file."""
    others: list[Literal["native", "accelerate", "deepspeed", "trainer"]]
    """Backends that this one was compared with."""
    steps: int
    """Optimizer steps that were compared."""
    versions: dict[str, str | None]
    """Package name to version in this backend's run."""
    difference: str | None
    """The first difference in words; null where there is none."""


class WrittenDefault(Struct, frozen=True, kw_only=True):
    """One hidden default of the backend, overwritten."""

    key: str
    """Dotted path in the target file."""
    value: Any
    """What was written."""
    hidden_default: Any
    """What the backend would have used had the key been absent."""
    why: str
    """What would have gone wrong."""


class RereadValue(Struct, frozen=True, kw_only=True):
    """One value, as planned and as read back."""

    name: str
    """The target's name for it."""
    planned: Any
    """What the plan says."""
    loaded: Any
    """What the loader says."""
    equal: bool
    """Whether the two are the same value."""


class ParityCheck(Struct, frozen=True, kw_only=True):
    """The command that trains this recipe on every backend that can and compares them, and what it last found here."""

    command: list[str]
    """The command, one word per entry."""
    evidence: ParityEvidence | None
    """What the newest parity.json below runs/ says of this recipe, size and kind of device; null where there is none."""


class Reread(Struct, frozen=True, kw_only=True):
    """What the target's own loader read back."""

    status: Literal["equal", "different", "skipped"]
    """equal: every value matched; different: at least one did not; skipped: the loader did not run."""
    loader: str | None
    """The loader and its version; null when it did not run."""
    reason: str | None
    """Why it was skipped; null otherwise."""
    values: list[RereadValue]
    """Each compared value."""


class LoweringReport(Struct, frozen=True, kw_only=True):
    """What became of every recipe field on one backend, what was written beside it, and what the target's own loader read back."""

    format_version: Literal[1]
    """Version of this document's format."""
    backend: Literal["native", "accelerate", "deepspeed", "trainer"]
    """Backend the recipe was lowered to."""
    recipe_name: str
    """The preset's name, or the recipe file's name without its suffix."""
    recipe_sha256: str
    """The plan's recipe_sha256."""
    fields: list[FieldOutcome]
    """One entry for every field of the recipe, in the schema's order."""
    defaults: list[WrittenDefault]
    """Hidden defaults of the backend that differ from the recipe and so were written out."""
    extras: list[str]
    """Keys taken from the recipe's own section for this backend, as dotted paths in the target file."""
    files: list[str]
    """Names of the files written, this report included."""
    environment: dict[str, str]
    """Environment variables that the command needs."""
    command: list[str]
    """The launch command, one word per entry; file names are relative to the output folder."""
    reread: Reread
    """What the target's own loader read back."""
    parity: ParityCheck | None = None
    """What is known of this backend training as others do; null where nobody looked."""
