"""Reads plan.json and refuses one that is not what `gradwire lower` wrote."""

from __future__ import annotations

from pathlib import Path

from gradwire.documents.plan_schema import Plan
from gradwire.errors import UsageError
from gradwire.measure.document import read_document
from gradwire.plan import check_plan


def read_plan(path: Path) -> tuple[Plan, Path]:
    """Return the plan at `path` (plan.json, or the folder that holds it) and its folder, absolute.

    Raises UsageError where there is none, or where it is not a valid, consistent plan; all violations at once.
    """
    file = path / "plan.json" if path.is_dir() else path
    if not file.exists():
        raise UsageError(f"{file}: no such file; `gradwire lower RECIPE --backend B --out {file.parent}` writes one")
    plan = read_document(file, "plan", Plan)
    try:
        check_plan(plan)
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from None
    return plan, file.resolve().parent
