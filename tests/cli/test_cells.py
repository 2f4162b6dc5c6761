"""The order of a comparison's runs, and how a failure is told in a table."""

from __future__ import annotations

import pytest

from gradwire.cli.cells import Attempt, Result, next_attempt, reason_of
from gradwire.cli.progress import last_step
from gradwire.documents.comparison_schema import Run
from gradwire.errors import (
    CannotLower,
    EnvironmentNotFit,
    GradwireError,
    InvalidRecipe,
    RefusedField,
    RunFailed,
    Violation,
)

ATTEMPTS = [
    Attempt(backend=backend, num_gpus=size, repeat=repeat)
    for repeat in (0, 1)
    for backend in ("native", "deepspeed")
    for size in (1, 2)
]


def result(attempt: Attempt, *, is_final: bool = False) -> Result:
    run = Run(
        backend="native",
        num_gpus=attempt.num_gpus,
        repeat=attempt.repeat,
        status="failed",
        reason="",
        folder="",
        samples_per_second=None,
        tokens_per_second=None,
        is_outlier=False,
    )
    return Result(attempt=attempt, run=run, measurement=None, seconds=0.0, is_final=is_final)


def order(final: set[tuple[str, int]]) -> list[Attempt]:
    results: list[Result] = []
    while (attempt := next_attempt(ATTEMPTS, results)) is not None:
        results.append(result(attempt, is_final=(attempt.backend, attempt.num_gpus) in final))
    return [made.attempt for made in results]


def test_repeats_are_interleaved() -> None:
    assert order(set()) == ATTEMPTS


def test_cell_that_would_fail_the_same_way_is_not_repeated() -> None:
    pointless = Attempt(backend="deepspeed", num_gpus=2, repeat=1)
    assert order({("deepspeed", 2)}) == [attempt for attempt in ATTEMPTS if attempt != pointless]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RunFailed("killed by SIGKILL\n    line\n  the whole output: x"), "killed by SIGKILL"),
        (EnvironmentNotFit("no GPU\nno torch"), "no GPU; no torch"),
        (
            CannotLower(
                recipe_name="x",
                backend="deepspeed",
                refused=[
                    RefusedField(path=path, value=value, limit=limit, nearest="none")
                    for path, value, limit in (
                        ("parallelism.pipeline.stages", "None", "no pipeline"),
                        ("parallelism.pipeline.schedule", "'1f1b'", "no pipeline"),
                        ("communication.compression.method", "'fp16'", "no hooks"),
                    )
                ],
            ),
            "parallelism.pipeline.stages, parallelism.pipeline.schedule: no pipeline; nearest: none; "
            "communication.compression.method: no hooks; nearest: none",
        ),
        (
            InvalidRecipe([Violation(source="a", line=1, column=1, path="training.seed", message="is odd")]),
            "training.seed: is odd",
        ),
    ],
)
def test_reason_is_one_line(error: GradwireError, expected: str) -> None:
    assert reason_of(error) == expected


def test_last_step_is_read_from_the_log(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("run")
    assert last_step(folder) is None
    (folder / "launch.log").write_text("hello\nstep 1/30  loss 5.4388  0.1 s\nstep 2/30  loss 5.1224  0.1 s\n")
    assert last_step(folder) == "step 2/30  loss 5.1224"
