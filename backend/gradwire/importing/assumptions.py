"""Lists the recipe keys that no imported file settles, and the value that each then has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gradwire.documents.recipe_schema import Recipe
from gradwire.importing.entry import Assumption, Carried
from gradwire.importing.keeping import Kept

_SCRIPT = "the training script decides it"
_NEVER_SAID: tuple[tuple[str, str], ...] = (
    ("model", "the training script brings the model"),
    ("data.path", "the training script brings the data"),
    ("training.optimizer", "no file names an optimizer: the training script makes it"),
    ("training.learning_rate", _SCRIPT),
    ("training.scheduler.type", "no file names a schedule: the training script makes it"),
    ("training.weight_decay", _SCRIPT),
    ("training.gradient_clip", _SCRIPT),
    ("training.batch_size_per_gpu", "the training script's loader decides it"),
    ("training.gradient_accumulation", _SCRIPT),
    ("training.gradient_checkpointing", _SCRIPT),
    ("training.compile", _SCRIPT),
    ("training.max_steps", _SCRIPT),
    ("training.seed", _SCRIPT),
)


def assumptions_of(carried: Iterable[Carried], kept: Iterable[Kept]) -> tuple[Assumption, ...]:
    """Return what rests on something that is not known here, and what keeps the recipe's default."""
    carried = tuple(carried)
    return (*_assumed(carried), *_kept(kept), *_left_open({each.path for each in carried}))


def _kept(kept: Iterable[Kept]) -> Iterator[Assumption]:
    for each in kept:
        if each.refused is None and each.effective.origin == "assumed":
            path = f"backends.{each.section}.{each.effective.path}"
            yield Assumption(path=path, value=each.effective.value, why=each.effective.note or "not known here")


def _assumed(carried: Iterable[Carried]) -> Iterator[Assumption]:
    for each in carried:
        if each.assumed is not None:
            yield Assumption(path=each.path, value=each.value, why=each.assumed.note or "not known here")


def _left_open(settled: set[str]) -> Iterator[Assumption]:
    defaults = Recipe()
    for path, why in _NEVER_SAID:
        if path not in settled:
            value: object = defaults
            for name in path.split("."):
                value = getattr(value, name)
            yield Assumption(path=path, value=value, why=why)
