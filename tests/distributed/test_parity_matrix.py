"""Every backend trains as a float64 process does, over pairs of strategy, optimizer, schedule, labels, precision, size.

All rows of one size go through one process group, whatever their backend: starts would take longer than training.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from gradwire.compare.parity import default_tolerances
from gradwire.documents.measurement_schema import Measurement
from gradwire.plan import Backend
from tests.distributed.matrix import CHOICES, MORE, Row, all_pairs, covering_rows, pairs, sets_of
from tests.distributed.real_runs import lowered, run_words, train_in_one_group

# A short text: each row reads it anew.
SMALL = (
    "model.layers=2",
    "model.sequence_length=24",
    "training.max_steps=6",
    "measurement.warmup_steps=6",
    f"data.path={argparse.__file__}",
)
ROWS: tuple[tuple[Row, tuple[str, ...]], ...] = (*((row, ()) for row in covering_rows()), *MORE)


def name_of(row: Row, more: Sequence[str]) -> str:
    return ", ".join([*row.values(), *more])


def lower_row(folder: Path, row: Row, more: Sequence[str]) -> Path:
    backend = cast(Backend, row["way"].partition(" ")[0])
    return lowered(folder, backend, *SMALL, *sets_of(row), *more)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Every row, lowered."""
    parent = tmp_path_factory.mktemp("matrix")
    return [lower_row(parent / str(number), row, more) for number, (row, more) in enumerate(ROWS)]


@pytest.fixture(scope="module")
def references(folders: list[Path]) -> list[dict[str, list[float]]]:
    """What each row gives in float64 on one process."""
    words = [sys.executable, Path(__file__).with_name("reference.py"), *folders]
    finished = run_words(*words, seconds=280, OMP_NUM_THREADS="1")
    finished.check()
    return cast(list[dict[str, Any]], json.loads(finished.output.splitlines()[-1]))


def test_rows_cover_every_pair_of_choices() -> None:
    rows = list(covering_rows())
    assert set().union(*map(pairs, rows)) == all_pairs()
    longest = sorted(len(names) for names in CHOICES.values())[-2:]
    assert len(rows) <= longest[0] * longest[1] + 4


@pytest.mark.distributed
@pytest.mark.parametrize("processes", ["1", "2", "4"])
def test_every_row_trains_as_the_reference(
    processes: str, folders: list[Path], references: list[dict[str, list[float]]]
) -> None:
    numbers = [number for number, (row, _) in enumerate(ROWS) if row["processes"] == processes]
    measured = train_in_one_group([folders[number] for number in numbers], int(processes))
    wrong = []
    for number, found in zip(numbers, measured, strict=True):
        name = name_of(*ROWS[number])
        wrong += [f"{name}: {text}" for text in complaints(ROWS[number][0], found, references[number])]
    assert not wrong, "\n".join(wrong)


def complaints(row: Row, found: Measurement, reference: dict[str, list[float]]) -> list[str]:
    tolerances = default_tolerances(row["precision"])
    assert found.batches is not None
    compared = {
        "learning rates": (found.learning_rates, reference["learning_rates"], 1e-9),
        "labels": (found.batches.labels, reference["labels"], 0),
        "sequences": (found.batches.sequences, [16] * 6, 0),
        "losses": (found.losses, reference["losses"], tolerances.loss),
        "gradient norms": (found.gradient_norms, reference["gradient_norms"], tolerances.gradient_norm),
    }
    return [
        f"{name} {values}, not {expected}"
        for name, (values, expected, relative) in compared.items()
        if None in values or values != pytest.approx(expected, rel=relative, abs=1e-15)
    ]


# In the same process as the test above, so that the references are trained once.
@pytest.mark.distributed
def test_the_rows_are_telling(references: list[dict[str, list[float]]]) -> None:
    """What is compared differs where a choice is ignored: the learning rate moves, and clipping clips."""
    for (row, _), reference in zip(ROWS, references, strict=True):
        assert (len(set(reference["learning_rates"])) > 1) == (row["schedule"] != "constant")
        assert min(reference["gradient_norms"]) > 0.5
        assert (reference["labels"][0] == 16 * 24) == (row["labels"] == "all")
