"""Runs the cells of a comparison, one attempt at a time; a failure becomes a failed run with its reason."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from gradwire.cli.launch import check_fit, start
from gradwire.cli.steps import load, lower_loaded
from gradwire.errors import CannotLower, GradwireError, InvalidRecipe, RunFailed

if TYPE_CHECKING:
    from gradwire.documents.comparison_schema import Run
    from gradwire.documents.measurement_schema import Measurement
    from gradwire.plan import Backend


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One run to be made."""

    backend: str
    num_gpus: int
    repeat: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """One run that was made; `is_final` says that running it again would fail the same way."""

    attempt: Attempt
    run: Run
    measurement: Measurement | None
    seconds: float
    is_final: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparing:
    """A comparison under way; `results` grows."""

    arguments: argparse.Namespace
    folder: Path
    results: list[Result] = field(default_factory=list)

    def folder_of(self, attempt: Attempt) -> Path:
        """Return the folder of one run."""
        return self.folder / f"{attempt.backend}-{attempt.num_gpus}" / f"repeat-{attempt.repeat}"

    def recipe_sha256(self) -> str:
        """Return the hash of the recipe that was asked for, whatever the size."""
        from gradwire.plan import recipe_sha256

        return recipe_sha256(load(self.arguments.recipe, self.arguments).recipe)


def next_attempt(attempts: Sequence[Attempt], results: Sequence[Result]) -> Attempt | None:
    """Return the first attempt that was not made and is not pointless; None when all are through."""
    made = {result.attempt for result in results}
    pointless = {(result.attempt.backend, result.attempt.num_gpus) for result in results if result.is_final}
    for attempt in attempts:
        if attempt not in made and (attempt.backend, attempt.num_gpus) not in pointless:
            return attempt
    return None


def run_attempt(attempt: Attempt, comparing: Comparing) -> Result:
    """Lower, check and run one attempt; what goes wrong is the result's reason."""
    from gradwire.documents.comparison_schema import Run

    started = time.monotonic()
    measurement, reason, is_final = None, None, False
    try:
        measurement = _measure(attempt, comparing)
    except GradwireError as error:
        reason = reason_of(error)
        is_final = not isinstance(error, RunFailed)
    run = Run(
        backend=cast("Backend", attempt.backend),
        num_gpus=attempt.num_gpus,
        repeat=attempt.repeat,
        status="failed" if measurement is None else "ok",
        reason=reason,
        folder=comparing.folder_of(attempt).relative_to(comparing.folder).as_posix(),
        samples_per_second=None,
        tokens_per_second=None,
        is_outlier=False,
    )
    seconds = time.monotonic() - started
    return Result(attempt=attempt, run=run, measurement=measurement, seconds=seconds, is_final=is_final)


def reason_of(error: GradwireError) -> str:
    """Return an error as one line for a table of failures."""
    match error:
        case InvalidRecipe():
            return "; ".join(f"{violation.path}: {violation.message}" for violation in error.violations)
        case CannotLower():
            return _refusals_in_short(error)
        case RunFailed():
            return str(error).splitlines()[0]
        case _:
            return "; ".join(str(error).splitlines())


def _refusals_in_short(error: CannotLower) -> str:
    """Return what a backend cannot express, fields with the same limit together, without the advice for `lower`."""
    paths: dict[str, list[str]] = {}
    for each in error.refused:
        paths.setdefault(f"{each.limit}; nearest: {each.nearest}", []).append(each.path)
    return "; ".join(f"{', '.join(together)}: {limit}" for limit, together in paths.items())


def _measure(attempt: Attempt, comparing: Comparing) -> Measurement:
    arguments = comparing.arguments
    loaded = load(arguments.recipe, arguments, num_gpus=attempt.num_gpus)
    folder = comparing.folder_of(attempt)
    plan, artifact = lower_loaded(
        loaded, arguments, backend=attempt.backend, folder=folder, allow_lossy=arguments.allow_lossy
    )
    check_fit(plan, artifact, arguments)
    _, measurement = start(artifact, folder, arguments, echo=False)
    if measurement is None:
        raise RunFailed(f"the run ended well but left no measurement in {folder}")
    return measurement
