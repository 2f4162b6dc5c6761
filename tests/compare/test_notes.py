"""What a reader must know before quoting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

Make = Callable[..., Any]
FEW = "fewer than 3 repeats, so the noise is not known; use --repeats 3 or more"
ONE = "grades with a * rest on one run and have no interval, so the noise is not known; use --repeats 3 or more"


@pytest.fixture(scope="module")
def notes(compared: Make) -> Make:
    """The notes on runs, without the one on few repeats."""

    def of(*runs: Any) -> list[str]:
        return [note for note in compared(*runs).notes if note not in (FEW, ONE)]

    return of


def test_quiet_runs_on_a_fit_machine_need_no_note(ran: Make, compared: Make) -> None:
    assert compared(*(ran(num_gpus=size, repeat=repeat) for repeat in range(3) for size in (1, 2))).notes == []


def test_few_repeats_are_said_once(ran: Make, compared: Make) -> None:
    assert compared(ran(num_gpus=1), ran(num_gpus=2)).notes == [ONE]
    assert compared(*(ran(num_gpus=size, repeat=repeat) for repeat in (0, 1) for size in (1, 2))).notes == [FEW]


def test_more_processes_than_cores_show_the_machine(ran: Make, notes: Make) -> None:
    found = notes(*(ran(num_gpus=size, cpu_count=2) for size in (1, 2, 4, 8)))
    assert found == ["4 and 8 processes on 2 cores: this shows the machine, not the backend"]
    assert notes(ran(num_gpus=2, cpu_count=1)) == ["2 processes on 1 core: this shows the machine, not the backend"]


def test_gpus_do_not_crowd_cores(ran: Make, notes: Make) -> None:
    assert notes(ran(num_gpus=8, cpu_count=2, device="cuda")) == []


def test_repeats_far_apart_are_noise(ran: Make, notes: Make) -> None:
    found = notes(*(ran(seconds=seconds, repeat=number) for number, seconds in enumerate((0.8, 1.0, 1.0))))
    assert found[-1:] == [
        "native on 1: the repeats spread over 25.0 % of their median; smaller differences mean nothing here"
    ]


def test_backends_with_other_losses_did_not_train_the_same(ran: Make, notes: Make) -> None:
    (found,) = notes(ran("native", 2, losses=[3.0, 2.0]), ran("deepspeed", 2, losses=[3.0, 2.1]))
    assert "(native 2, deepspeed 2.1): the backends did not train the same thing" in found
    assert notes(ran("native", 2, losses=[3.0, 2.0]), ran("deepspeed", 2, losses=[3.0, 2.001])) == []


def test_more_than_ideal_is_questioned(ran: Make, notes: Make) -> None:
    (found,) = notes(ran(num_gpus=1, seconds=1.0), ran(num_gpus=2, seconds=0.8))
    assert found.startswith("native on 2: 125.0 % is more than ideal")


def test_a_baseline_of_several_processes_is_named_with_its_cause(ran: Make, failed: Make, notes: Make) -> None:
    (asked,) = notes(ran(num_gpus=2), ran(num_gpus=4))
    assert "the baseline is extrapolated: efficiencies are against 2 processes (the smallest asked for)" in asked
    (lost,) = notes(failed(num_gpus=1, reason="no"), ran(num_gpus=2), ran(num_gpus=4))
    assert "(no smaller size could be used)" in lost


def test_a_lost_repeat_is_said_with_its_reason(ran: Make, failed: Make, notes: Make) -> None:
    found = notes(ran(), failed(reason="killed", repeat=1), ran(repeat=2))
    assert found == ["native on 1: 1 of 3 repeats failed (killed)"]


def test_other_versions_and_machines_are_said(ran: Make, notes: Make) -> None:
    found = notes(ran(num_gpus=1), ran(num_gpus=2, versions={"torch": "2.14.0"}, cpu_count=32))
    assert found[0].startswith("the runs were made on 2 kinds of machine (")
    assert found[1] == "the runs had different versions of torch: 2.13.0, 2.14.0"


def test_steps_that_differ_within_a_run_are_said(ran: Make, notes: Make) -> None:
    run, measurement = ran("accelerate", 2)
    uneven = replace(measurement, step_seconds=replace(measurement.step_seconds, median=1.0, p95=1.5))
    (found,) = notes(ran("native", 2), (run, uneven))
    assert found.startswith("uneven steps (p95 over the median: accelerate on 2 1.50x)")


def test_the_notes_of_runs_are_kept_once_with_their_cells(ran: Make, notes: Make) -> None:
    found = notes(
        ran(notes=["text: 5 bytes"]),
        ran(repeat=1, notes=["text: 5 bytes"]),
        ran(num_gpus=2, notes=["text: 5 bytes", "compiled anew"]),
    )
    assert found == ["every run: text: 5 bytes", "native on 2: compiled anew"]


def test_an_outlier_is_named_with_the_rule_and_stays_in_the_figures(ran: Make, compared: Make) -> None:
    seconds = (1.0, 1.01, 0.99, 2.0)
    comparison = compared(*(ran(seconds=each, repeat=number) for number, each in enumerate(seconds)))
    assert [run.is_outlier for run in comparison.runs] == [False, False, False, True]
    assert comparison.cells[0].repeats == 4
    assert comparison.cells[0].tokens_per_second_minimum == 32
    (found,) = [note for note in comparison.notes if note.startswith("outliers, kept in every figure")]
    assert "native on 1 repeat 4 (49.8 % slower than the median)" in found
    assert "3.5 robust standard deviations" in found


def test_a_machine_too_noisy_for_a_verdict_says_so(ran: Make, compared: Make) -> None:
    runs = [
        ran(num_gpus=size, seconds=seconds, repeat=repeat)
        for repeat, pair in enumerate([(1.0, 1.0), (1.0, 1.5), (1.0, 1.2)])
        for size, seconds in zip((1, 2), pair, strict=True)
    ]
    comparison = compared(*runs)
    two = comparison.cells[1]
    assert (two.grade, two.grade_basis) == ("undecided", "interval")
    assert "wider than a grade" in str(two.noise)
    assert any("native on 2: this machine is too noisy for a verdict" in note for note in comparison.notes)
