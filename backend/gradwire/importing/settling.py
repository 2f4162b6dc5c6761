"""Settles an imported recipe: what breaks a rule of recipes is not carried, nor a schedule other than the file's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gradwire.errors import CannotLower, UsageError
from gradwire.importing.accelerate_table import COMPILERS
from gradwire.importing.entry import Carried
from gradwire.importing.keeping import Kept, Values, Wanted, keep_rest
from gradwire.importing.lowered import Target, lower_for, nested, read_lowered, recipe_of
from gradwire.importing.scheduler_table import carry_deepspeed_scheduler
from gradwire.recipe.conforms import conforms
from gradwire.recipe.load import broken_rules_of
from gradwire.targets.batch import Batch
from gradwire.targets.comparable import comparable_deepspeed, differing
from gradwire.targets.deepspeed_effective import default_of
from gradwire.targets.effective import Reading

# Without these there is no recipe at all, or none of these processes.
_ALWAYS = ("parallelism.data.strategy", "training.num_gpus", "training.device")


_BY_COMPILER = {"dynamo_config.dynamo_backend": f"a recipe compiles with {', '.join(COMPILERS)}"}
# Said where these are refused at stage 0.
_HALF_WITHOUT_ZERO = dict.fromkeys(
    ("fp16.enabled", "bf16.enabled"),
    "without ZeRO a recipe's mixed precision is torch's autocast: DeepSpeed's own 16-bit mode takes a step on zero "
    "gradients before the first one (https://github.com/deepspeedai/DeepSpeed/issues/5151). Set "
    "zero_optimization.stage to 1, which computes the same, or import with --allow-lossy, which leaves it to autocast",
)


def values_of(carried: Iterable[Carried]) -> Values:
    """Return the recipe's values by path."""
    return {tuple(each.path.split(".")): each.value for each in carried}


def settled(
    carried: Sequence[Carried], wanted: tuple[Wanted, ...], target: Target
) -> tuple[list[Carried], Values, list[Kept]]:
    """Return what is carried, the recipe's values with what is kept for its backend, and what is kept or refused."""
    left, reasons = _without_broken(carried, target)
    reasons |= _BY_COMPILER | (_HALF_WITHOUT_ZERO if _is_without_zero(wanted) else {})
    values, kept = keep_rest(values_of(left), wanted, target)
    explained = [
        replace(each, refused=reasons[each.effective.path])
        if each.refused is not None and each.effective.path in reasons
        else each
        for each in kept
    ]
    return left, values, explained


def _is_without_zero(wanted: Iterable[Wanted]) -> bool:
    stages = [each.values.get("zero_optimization.stage") for each in wanted if each.section == "deepspeed"]
    return any(stage is None or stage.value == 0 for stage in stages)


def _without_broken(carried: Sequence[Carried], target: Target) -> tuple[list[Carried], dict[str, str]]:
    """Leave out what breaks a rule of recipes; returns the rest, and the rule's words by the path of the file's key."""
    left, reasons = _within_limits(carried)
    while broken := broken_rules_of(recipe_of(values_of(left)), target.device):
        paths = [path for path in broken[0].paths if path not in _ALWAYS]
        culprits = [each for path in paths for each in left if each.path == path]
        if not culprits:
            raise UsageError(f"the files make no valid recipe: {broken[0].paths[0]}: {broken[0].message}")
        left = [each for each in left if each is not culprits[0]]
        reasons |= {source.path: broken[0].message for source in culprits[0].sources}
    return left, reasons


def _within_limits(carried: Sequence[Carried]) -> tuple[list[Carried], dict[str, str]]:
    """Leave out values that a recipe does not take, such as a learning rate of 0."""
    document = nested(values_of(carried))
    if conforms(document):
        return list(carried), {}
    # jsonschema takes long to import, so it waits for a document that is known to be wrong.
    from gradwire.recipe.findings import find

    found = {".".join(str(name) for name in finding.path): finding.message for finding in find(document)}
    reasons = {
        source.path: f"{each.path}: {message}"
        for each in carried
        for path, message in found.items()
        if path == each.path or path.startswith(f"{each.path}.")
        for source in each.sources
    }
    left = [
        each for each in carried if not any(path == each.path or path.startswith(f"{each.path}.") for path in found)
    ]
    return left, reasons


def fitting_schedule(
    deepspeed: Reading | None, batch: Batch | None, carried: Sequence[Carried], target: Target
) -> list[Carried]:
    """Return the recipe's schedule that lowers to DeepSpeed's scheduler; nothing where there is none."""
    schedule = nearest_schedule(deepspeed, batch, carried, target)
    if deepspeed is None or batch is None or not schedule:
        return []
    recipe = recipe_of(values_of(with_schedule(carried, schedule)))
    alone = replace(target, backend="deepspeed")
    try:
        after = read_lowered(lower_for(recipe, alone, allow_lossy=True), recipe, alone).deepspeed or {}
    except CannotLower:
        return []
    different = differing(comparable_deepspeed(deepspeed, batch), after, default_of)
    is_same = not any(path.startswith("scheduler.") or path == "optimizer.params.lr" for path in different)
    return schedule if is_same else []


def nearest_schedule(
    deepspeed: Reading | None, batch: Batch | None, carried: Sequence[Carried], target: Target
) -> list[Carried]:
    """Return the recipe's schedule of the same kind and steps as DeepSpeed's; nothing where a recipe has none."""
    if deepspeed is None or batch is None:
        return []
    values = comparable_deepspeed(deepspeed, batch)
    schedule = list(carry_deepspeed_scheduler(values)) if "scheduler.type" in values else []
    left, _ = _without_broken(with_schedule(carried, schedule), target)
    return schedule if all(each in left for each in schedule) else []


def with_schedule(carried: Sequence[Carried], schedule: Sequence[Carried]) -> list[Carried]:
    """Return what is carried, with `schedule` in the place of what is said of it."""
    replaced = {each.path for each in schedule}
    return [*(each for each in carried if each.path not in replaced), *schedule]
