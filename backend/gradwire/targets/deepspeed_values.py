"""What DeepSpeed makes of the values of a file: which it refuses, and which it takes for something else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradwire.targets.schema import Spec, Visit, as_version, section_of, visit
from gradwire.targets.tree import Document
from gradwire.targets.values import Misfit, plain_misfit, pydantic_misfit


def is_removed(each: Visit, version: str) -> bool:
    """Whether the key belongs to a feature that this version has no more; it refuses the key."""
    removal = each.section.get("x-removed", {}).get(each.member.name)
    return removal is not None and as_version(version) >= as_version(removal["version"])


def twin_of(each: Visit) -> str | None:
    """The other name of a field that is written too, so that DeepSpeed refuses this one; "auto" counts as absent."""
    twin: str | None = each.says.get("x-same-as")
    if twin is None or each.siblings.get(twin, "auto") == "auto" or each.member.node.data == "auto":
        return None
    return twin


def misfits(document: Document) -> Iterator[tuple[Visit, Misfit]]:
    """Every value that is not of its key's type, with what becomes of it."""
    for each in visit(document):
        spec, value = each.spec, each.member.node.data
        strict = each.section["x-unknown-keys"] == "refused"
        if spec is None or value == "auto" or (spec.get("x-inert") and not strict):
            continue
        section = section_of("deepspeed", spec)
        if section is not None:
            if isinstance(value, dict) or _section_may_be(spec, value):
                continue
            yield each, Misfit(outcome="refused", expected="a mapping of keys")
            continue
        misfit = (pydantic_misfit if strict else plain_misfit)(spec, value)
        if misfit is not None:
            yield each, _taken_for_another(spec, value, misfit)


def _taken_for_another(spec: Spec, value: object, misfit: Misfit) -> Misfit:
    if "x-else" not in spec or isinstance(value, dict | list):
        return misfit
    return replace(misfit, outcome="replaced", becomes=spec["x-else"])


def _section_may_be(spec: dict[str, object], value: object) -> bool:
    alternatives = spec.get("anyOf")
    if not isinstance(alternatives, list):
        return False
    kinds = {part.get("type") for part in alternatives if isinstance(part, dict)}
    return (value is None and "null" in kinds) or (isinstance(value, bool) and "boolean" in kinds)
