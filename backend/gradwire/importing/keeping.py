"""Finds what lowering an imported recipe would make different, and keeps it in the recipe's section for the backend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gradwire.errors import CannotLower, RefusedField
from gradwire.importing.lowered import Target, lower_for, read_lowered, recipe_of
from gradwire.targets.accelerate_effective import accelerate_default
from gradwire.targets.comparable import differing
from gradwire.targets.deepspeed_effective import default_of
from gradwire.targets.effective import Effective

Values = dict[tuple[str, ...], Any]
"""A recipe's values by path."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What a backend's file ends up with now, by path, and the paths (or their sections) that need not be the same."""

    section: str
    values: Mapping[str, Effective]
    free: tuple[str, ...]

    def is_free(self, path: str) -> bool:
        """Whether the recipe need not lower to the same value at a path."""
        return any(path == each or path.startswith(f"{each}.") for each in self.free)


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """One value that goes into `backends.SECTION`, or that cannot, and then `refused` says why."""

    section: str
    effective: Effective
    refused: str | None = None


def keep_rest(values: Values, wanted: Iterable[Wanted], target: Target) -> tuple[Values, list[Kept]]:
    """Return the recipe's values with all that has to be kept for its backend, and what was kept or refused.

    The recipe then lowers without loss to files that end up with the wanted values, the refused ones excepted.
    """
    wanted = tuple(wanted)
    kept = _differences(values, wanted, target)
    limits = _limits(_with_kept(values, kept), target)
    judged = _with_their_switch([_judged(each, limits) for each in kept])
    final = _with_kept(values, [each for each in judged if each.refused is None])
    for left in _differences(final, wanted, target):
        known = {(each.section, each.effective.path) for each in judged if each.refused is not None}
        if (left.section, left.effective.path) not in known:
            judged = [each for each in judged if each.effective.path != left.effective.path]
            judged.append(
                Kept(section=left.section, effective=left.effective, refused="no recipe lowers to this value")
            )
    final = _with_kept(values, [each for each in judged if each.refused is None])
    return final, judged


def _with_their_switch(judged: list[Kept]) -> list[Kept]:
    """Refuse the keys of a section whose switch is refused."""
    off = {
        each.effective.path.removesuffix(".enabled")
        for each in judged
        if each.refused is not None and each.effective.path.endswith(".enabled")
    }
    return [
        replace(each, refused=f"it belongs to {section}.enabled, which is refused")
        if each.refused is None and (section := each.effective.path.rpartition(".")[0]) in off
        else each
        for each in judged
    ]


def _differences(values: Values, wanted: tuple[Wanted, ...], target: Target) -> list[Kept]:
    recipe = recipe_of(values)
    lowered = read_lowered(lower_for(recipe, target, allow_lossy=True), recipe, target)
    found = []
    for each in wanted:
        now = lowered.deepspeed if each.section == "deepspeed" else lowered.accelerate
        default = default_of if each.section == "deepspeed" else accelerate_default
        for path, (effective, _) in differing(each.values, now or {}, default).items():
            if not each.is_free(path):
                found.append(Kept(section=each.section, effective=effective))
    return found


def _with_kept(values: Values, kept: Iterable[Kept]) -> Values:
    extended = dict(values)
    for each in kept:
        extended[("backends", each.section, *each.effective.path.split("."))] = each.effective.value
    return extended


def _limits(values: Values, target: Target) -> list[RefusedField]:
    try:
        lower_for(recipe_of(values), target)
    except CannotLower as error:
        return error.refused
    return []


def _judged(kept: Kept, limits: list[RefusedField]) -> Kept:
    path = kept.effective.path
    if not _fits(kept.effective.value):
        return replace(kept, refused="a recipe holds no whole number beyond 64 bits")
    for each in limits:
        subject = each.limit.split(":")[0].split(" is ")[0].strip()
        if each.path == f"backends.{kept.section}" and (path == subject or path.startswith(f"{subject}.")):
            return Kept(section=kept.section, effective=kept.effective, refused=each.limit)
    return kept


def _fits(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_fits(each) for each in value.values())
    if isinstance(value, list):
        return all(_fits(each) for each in value)
    return not isinstance(value, int) or -(2**63) <= value < 2**63
