"""Collects measurements that exist already into the runs of a comparison; runs that are unlike are refused."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradwire.compare.groups import Made
from gradwire.compare.like import Scaling, scaling_of_runs, unlike, unlike_batch
from gradwire.documents.comparison_schema import Run
from gradwire.documents.measurement_schema import Measurement
from gradwire.errors import UsageError
from gradwire.measure.measurement import read_measurement
from gradwire.measure.rank_log import has_rank_logs
from gradwire.reading import read_regular

MEASUREMENT = "measurement.json"
# What may differ between runs that train alike: it changes how long a run is or where it starts, not its speed.
_HARMLESS = ("summary", "extends", "training.num_gpus", "training.max_steps", "training.seed", "measurement.")
# Under strong scaling the batch per rank must change with the size.
_BATCH = ("training.batch_size_per_gpu", "training.gradient_accumulation", "training.global_batch_size")
_LARGEST_PLAN_BYTES = 4 * 2**20


def find_measurements(paths: Sequence[Path]) -> list[Path]:
    """Return the measurement.json files among `paths` and below those that are folders, each once, in name order.

    Raises UsageError for every path that holds none.
    """
    found: list[Path] = []
    empty = []
    for path in paths:
        mine = sorted(path.rglob(MEASUREMENT)) if path.is_dir() else [path]
        if not mine:
            hint = f"; `gradwire measure --out {path}` makes it of what the ranks of a killed run left"
            empty.append(f"{path}: no {MEASUREMENT} in it or below it{hint if has_rank_logs(path) else ''}")
        elif not path.exists():
            empty.append(f"{path}: does not exist")
        found += mine
    if empty:
        raise UsageError("\n".join(empty))
    return list({path.resolve(): path for path in found}.values())


def gather(files: Sequence[Path], *, beside: Path) -> tuple[Scaling, list[Made]]:
    """Return the kind of scaling and the runs of `files`, ordered by when they started; folders relative to `beside`.

    Runs of one backend and size are repeats of each other. Raises UsageError, with everything that differs, where a
    run is unlike the first one: a report of both would compare what is not comparable.
    """
    measured = sorted(((read_measurement(path), path) for path in files), key=lambda entry: entry[0].started_at)
    scaling = scaling_of_runs(measurement for measurement, _ in measured)
    _refuse_unlike(measured, scaling)
    seen: Counter[tuple[str, int]] = Counter()
    runs: list[Made] = []
    for measurement, path in measured:
        cell = (measurement.backend, measurement.world.world_size)
        runs.append((_run(measurement, seen[cell], _folder(path, beside)), measurement))
        seen[cell] += 1
    return scaling, runs


def _refuse_unlike(measured: Sequence[tuple[Measurement, Path]], scaling: Scaling) -> None:
    first, first_path = measured[0]
    recipe = _recipe_beside(first_path)
    wrong = []
    for measurement, path in measured[1:]:
        differences = unlike(measurement.workload, first.workload, scaling=scaling)
        if not differences and measurement.steps.timed and first.steps.timed:
            differences = unlike_batch(measurement, first, scaling=scaling)
        if not differences and measurement.recipe_sha256 != first.recipe_sha256:
            differences = _other_recipe(_recipe_beside(path), recipe, measurement, first, scaling)
        wrong += [f"{path}: {difference}" for difference in differences]
    if wrong:
        raise UsageError(
            "\n".join(
                [
                    f"these runs are unlike {first_path}, so they do not compare:",
                    *wrong,
                    "report on them one kind at a time",
                ]
            )
        )


def _other_recipe(
    mine: Mapping[str, Any] | None,
    theirs: Mapping[str, Any] | None,
    one: Measurement,
    other: Measurement,
    scaling: Scaling,
) -> list[str]:
    if mine is None or theirs is None:
        return [
            f"recipe: {one.recipe_sha256[:12]} against {other.recipe_sha256[:12]} (no plan.json beside it says more)"
        ]
    free = (*_HARMLESS, *(_BATCH if scaling == "strong" else ()))
    return [
        f"{key}: {json.dumps(mine.get(key))} against {json.dumps(theirs.get(key))}"
        for key in sorted({*mine, *theirs})
        if mine.get(key) != theirs.get(key) and not key.startswith(free)
    ]


def _recipe_beside(path: Path) -> dict[str, Any] | None:
    """The recipe of the plan beside a measurement, its leaves by dotted key; None where there is none to read."""
    plan = path.with_name("plan.json")
    try:
        content = read_regular(plan, max_bytes=_LARGEST_PLAN_BYTES)
        if len(content) > _LARGEST_PLAN_BYTES:
            return None
        recipe = json.loads(content)["recipe"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return dict(_leaves(recipe, "")) if isinstance(recipe, dict) else None


def _leaves(value: Mapping[str, Any], before: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, inner in value.items():
        found += _leaves(inner, f"{before}{key}.") if isinstance(inner, dict) and inner else [(f"{before}{key}", inner)]
    return found


def _run(measurement: Measurement, repeat: int, folder: str) -> Run:
    return Run(
        backend=measurement.backend,
        num_gpus=measurement.world.world_size,
        repeat=repeat,
        status="ok",
        reason=None,
        folder=folder,
        samples_per_second=None,
        tokens_per_second=None,
        is_outlier=False,
    )


def _folder(path: Path, beside: Path) -> str:
    return Path(os.path.relpath(path.resolve().parent, beside.resolve())).as_posix()
