"""Measurements that exist already, made into a comparison."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gradwire.compare.build import build_comparison
from gradwire.compare.gather import find_measurements, gather
from gradwire.errors import UsageError
from gradwire.measure.measurement import write_measurement

Make = Callable[..., Any]


@pytest.fixture
def kept(ran: Make, tmp_path: Path) -> Make:
    """A run that was written to a folder; the folder."""

    def keep(name: str, *arguments: Any, minute: int = 0, recipe: dict[str, Any] | None = None, **given: Any) -> Path:
        _, measurement = ran(*arguments, **given)
        started = f"2026-05-01T12:{minute:02}:00+00:00"
        write_measurement(tmp_path / name / "measurement.json", replace(measurement, started_at=started))
        if recipe is not None:
            (tmp_path / name / "plan.json").write_text(json.dumps({"recipe": recipe}))
        return tmp_path / name

    return keep


def test_folders_are_searched_and_each_file_is_taken_once(kept: Make, tmp_path: Path) -> None:
    one, two = kept("a/one"), kept("a/two")
    found = find_measurements([tmp_path / "a", two / "measurement.json", one])
    assert found == [one / "measurement.json", two / "measurement.json"]


def test_every_path_without_a_measurement_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refusal:
        find_measurements([tmp_path, tmp_path / "none"])
    assert str(refusal.value).splitlines() == [
        f"{tmp_path}: no measurement.json in it or below it",
        f"{tmp_path}/none: does not exist",
    ]


def test_runs_come_as_they_started_and_repeats_are_numbered(kept: Make, tmp_path: Path) -> None:
    for round_number in range(3):
        kept(f"z{round_number}", num_gpus=1, minute=10 * round_number)
        kept(f"a{round_number}", num_gpus=2, seconds=1.25, minute=10 * round_number + 5)
    scaling, runs = gather(find_measurements([tmp_path]), beside=tmp_path / "report")
    assert scaling == "weak"
    assert [(run.num_gpus, run.repeat, run.folder) for run, _ in runs[:3]] == [
        (1, 0, "../z0"),
        (2, 0, "../a0"),
        (1, 1, "../z1"),
    ]
    comparison = build_comparison("x", "0" * 64, scaling, runs, recipes_are_alike=True)
    two = comparison.cells[1]
    assert (two.scaling_efficiency, two.grade) == (0.8, "acceptable")
    assert two.interval is not None
    assert two.interval.method == "paired-t"


def test_a_fixed_global_batch_is_strong_scaling(kept: Make, tmp_path: Path) -> None:
    kept("one", num_gpus=1, batch_size_per_gpu=8, recipe={"training": {"batch_size_per_gpu": 8}})
    kept("two", num_gpus=2, batch_size_per_gpu=4, recipe={"training": {"batch_size_per_gpu": 4}})
    assert gather(find_measurements([tmp_path]), beside=tmp_path)[0] == "strong"


def test_runs_that_trained_something_else_are_refused_all_at_once(kept: Make, tmp_path: Path) -> None:
    kept("a")
    kept("b", num_gpus=2, precision="bf16-true", minute=1)
    kept("c", num_gpus=2, optimizer="SGD", minute=2)
    with pytest.raises(UsageError) as refusal:
        gather(find_measurements([tmp_path]), beside=tmp_path)
    text = str(refusal.value)
    assert f"unlike {tmp_path}/a/measurement.json" in text
    assert "b/measurement.json: precision: bf16-true against fp32" in text
    assert "c/measurement.json: optimizer: SGD against AdamW" in text


def test_another_recipe_is_named_by_its_keys_where_the_plan_lies_beside(kept: Make, tmp_path: Path) -> None:
    overlap: dict[str, Any] = {"communication": {"overlap": {"bucket_cap_mb": 25}}, "training": {"seed": 1}}
    other: dict[str, Any] = {"communication": {"overlap": {"bucket_cap_mb": 50}}, "training": {"seed": 2}}
    kept("a", recipe=overlap)
    kept("b", num_gpus=2, learning_rate=0.5, minute=1, recipe=other)
    with pytest.raises(UsageError, match=r"communication.overlap.bucket_cap_mb: 50 against 25") as refusal:
        gather(find_measurements([tmp_path]), beside=tmp_path)
    assert "seed" not in str(refusal.value)
    (tmp_path / "b" / "plan.json").unlink()
    with pytest.raises(UsageError, match=r"recipe: \w{12} against \w{12} \(no plan.json beside it says more\)"):
        gather(find_measurements([tmp_path]), beside=tmp_path)


def test_another_seed_or_length_compares(kept: Make, tmp_path: Path) -> None:
    kept("a", recipe={"training": {"max_steps": 10, "seed": 1, "learning_rate": 0.1}})
    kept(
        "b", num_gpus=2, max_steps=50, minute=1, recipe={"training": {"max_steps": 50, "seed": 2, "learning_rate": 0.1}}
    )
    assert len(gather(find_measurements([tmp_path]), beside=tmp_path)[1]) == 2
