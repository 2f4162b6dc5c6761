"""Step three: the merged document against the schema, every violation at once, then the frozen structs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from gradwire.documents.recipe_schema import Recipe
from gradwire.errors import InvalidRecipe, Violation
from gradwire.recipe.conforms import conforms
from gradwire.recipe.merge import Merged, Origin
from gradwire.recipe.show import show_path

if TYPE_CHECKING:
    from gradwire.recipe.findings import Finding


def validate(merged: Merged) -> Recipe:
    """Return the recipe that `merged` is; raises InvalidRecipe with every fault of its text and of its values."""
    if not merged.faults and conforms(merged.data):
        return msgspec.convert(merged.data, Recipe)
    # jsonschema takes 80 ms to import, so it waits for a document that is known to be wrong.
    from gradwire.recipe.findings import find

    findings = {(found.path, found.message): found for found in find(merged.data)}
    violations = [_violation(found, merged) for found in findings.values()]
    known = [found for found in violations if not any(_is_same_value(found, fault) for fault in merged.faults)]
    raise InvalidRecipe(in_file_order([*merged.faults, *known]))


def in_file_order(violations: Iterable[Violation]) -> list[Violation]:
    """Return the violations sorted by source, line and column; those without a place come first."""
    return sorted(violations, key=lambda found: (found.source, found.line or 0, found.column or 0))


def _is_same_value(violation: Violation, fault: Violation) -> bool:
    """Return whether both are of one value: of one that cannot be read, nothing else is known."""
    if fault.line is None:
        return (violation.source, violation.path) == (fault.source, fault.path)
    return (violation.source, violation.line, violation.column) == (fault.source, fault.line, fault.column)


def _violation(found: Finding, merged: Merged) -> Violation:
    origin = _origin(found, merged)
    return Violation(
        source=origin.source,
        line=origin.line,
        column=origin.column,
        path=show_path(found.path),
        message=found.message,
    )


def _origin(found: Finding, merged: Merged) -> Origin:
    if found.at_key or found.path not in merged.values:
        # What is missing is missing below the key of its section.
        for path in (found.path, found.path[:-1]):
            if path in merged.keys:
                return merged.keys[path]
    return merged.values[found.path]
