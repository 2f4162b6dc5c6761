"""Lowers a plan to one backend: pure, from a plan to frozen files and a command."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

from gradwire.artifact import Artifact, build_artifact, document_text
from gradwire.documents.lowering_schema import LoweringReport, Reread
from gradwire.documents.plan_schema import Plan
from gradwire.errors import CannotLower, RefusedField
from gradwire.lowering.fields import Refusal, account, read_path, with_values
from gradwire.lowering.placement import Placement, check_placement
from gradwire.lowering.shared import Lowered
from gradwire.plan import settle
from gradwire.recipe.show import show_value

__all__ = ["Placement", "lower"]

_MODULES = {
    "native": "gradwire.lowering.native",
    "accelerate": "gradwire.lowering.accelerate",
    "deepspeed": "gradwire.lowering.deepspeed",
    "trainer": "gradwire.lowering.trainer",
}


class _BackendModule(Protocol):
    def refusals(self, plan: Plan) -> list[Refusal]: ...

    def build(self, plan: Plan, placement: Placement, program: tuple[str, ...] | None) -> Lowered: ...


def lower(
    plan: Plan, *, placement: Placement, program: tuple[str, ...] | None = None, allow_lossy: bool = False
) -> Artifact:
    """Return the files and the command that run `plan` on its backend.

    `program` is the user's own script and its arguments; None runs `gradwire.train` on the plan.
    Raises CannotLower with every field that the backend cannot express. With `allow_lossy` those fields take the
    nearest value that it can, in the written plan too, and the report says so; its recipe_sha256 is then that of the
    changed recipe. Raises UsageError where the placement or the program cannot be used.
    """
    check_placement(plan, placement)
    backend = cast(_BackendModule, import_module(_MODULES[plan.backend]))
    asked, refused = plan.recipe, backend.refusals(plan)
    if refused and not allow_lossy:
        raise CannotLower(
            recipe_name=plan.recipe_name, backend=plan.backend, refused=[_refused_field(plan, each) for each in refused]
        )
    pending = refused
    while pending:
        plan = _fall_back(plan, pending)
        pending = backend.refusals(plan)
        refused = [*refused, *pending]
    lowered = backend.build(plan, placement, program)
    report = LoweringReport(
        format_version=1,
        backend=plan.backend,
        recipe_name=plan.recipe_name,
        recipe_sha256=plan.recipe_sha256,
        fields=account(asked, lowered.outcomes, refused),
        defaults=list(lowered.defaults),
        extras=list(lowered.extras),
        files=[],
        environment={},
        command=[],
        reread=Reread(status="skipped", loader=None, reason="the target's own loader has not run yet", values=[]),
    )
    return build_artifact(
        plan_text=document_text(plan),
        target_files=lowered.files,
        command=lowered.command,
        environment=lowered.environment,
        report=report,
    )


def _fall_back(plan: Plan, refused: list[Refusal]) -> Plan:
    values = {path: value for refusal in refused for path, value in refusal.fallback.items()}
    return settle(
        with_values(plan.recipe, values),
        recipe_name=plan.recipe_name,
        backend=plan.backend,
        device=plan.world.device,
        num_nodes=plan.world.num_nodes,
    )


def _refused_field(plan: Plan, refusal: Refusal) -> RefusedField:
    value = read_path(plan.recipe, refusal.path)
    return RefusedField(path=refusal.path, value=show_value(value), limit=refusal.limit, nearest=refusal.nearest)
