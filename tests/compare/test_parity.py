"""Planted differences are found at their step, in the order of cause; equal runs are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from msgspec import structs, to_builtins

from gradwire.compare.parity import build_parity, compare_runs, default_tolerances
from gradwire.compare.parity_text import difference_text, findings, parity_rows, verdict_text
from gradwire.documents.measurement_schema import Batches, Measurement
from gradwire.documents.parity_schema import Parity, ParityRun
from gradwire.measure.document import violations
from gradwire.plan import Backend

STEPS = 5
TOLERANCES = default_tolerances("fp32")

Recorded = Callable[..., Measurement]


@pytest.fixture
def recorded(ran: Callable[..., Any]) -> Recorded:
    """A measurement of five steps, with series replaced by name."""

    def make(backend: Backend = "native", **series: Any) -> Measurement:
        _, measurement = ran(backend, 1)
        values: dict[str, Any] = {
            "losses": [5.0, 4.0, 3.5, 3.2, 3.0],
            "gradient_norms": [2.0, 1.5, 1.2, 1.1, 1.0],
            "learning_rates": [0.0, 0.001, 0.002, 0.001, 0.0],
            "batches": Batches(sequences=[16] * STEPS, labels=[64] * STEPS, text_checksums=[1, 2, 3, 4, 5]),
            **series,
        }
        return cast(Measurement, structs.replace(measurement, **values))

    return make


def run_of(backend: Backend, status: Any = "ok", reason: str | None = None) -> ParityRun:
    return ParityRun(backend=backend, status=status, reason=reason, folder=backend, versions={})


def parity_of(*measurements: Measurement, more: tuple[ParityRun, ...] = ()) -> Parity:
    return build_parity(
        recipe_name="mine",
        recipe_sha256="0" * 64,
        world=measurements[0].world,
        steps=STEPS,
        tolerances=TOLERANCES,
        runs=[*(run_of(measurement.backend) for measurement in measurements), *more],
        measurements={measurement.backend: measurement for measurement in measurements},
    )


def test_equal_runs_are_the_same(recorded: Recorded) -> None:
    parity = parity_of(recorded(), recorded("deepspeed"))
    assert parity.verdict == "same"
    assert parity.reference == "native"
    assert violations(to_builtins(parity), "parity") == []
    assert parity_rows(parity)[1] == ("deepspeed", "equal", "equal", "equal", "equal")
    assert verdict_text(parity) == "the same over 5 steps: native, deepspeed"
    assert list(findings(parity)) == []


def test_rounding_within_the_tolerance_is_reported_and_allowed(recorded: Recorded) -> None:
    other = recorded("deepspeed", losses=[5.0, 4.0, 3.5, 3.2001, 3.0])
    pairing = compare_runs(recorded(), other, TOLERANCES)
    assert pairing.is_same
    [loss] = [quantity for quantity in pairing.quantities if quantity.name == "loss"]
    assert loss.largest_difference == pytest.approx(0.0001 / 3.2001)


@pytest.mark.parametrize(
    ("series", "quantity", "step", "cause"),
    [
        ({"losses": [5.01, 4.0, 3.5, 3.2, 3.0]}, "loss", 1, "how a loss is averaged"),
        ({"losses": [5.0, 4.0, 3.6, 3.2, 3.0]}, "loss", 3, "the update of step 2, whose gradient was the same"),
        (
            {"losses": [5.0, 4.0, 3.6, 3.2, 3.0], "gradient_norms": [2.0, 1.8, 1.2, 1.1, 1.0]},
            "gradient_norm",
            2,
            "averaged over ranks and micro-steps",
        ),
        ({"learning_rates": [0.0, 0.0, 0.001, 0.002, 0.001]}, "learning_rate", 2, "warm-up"),
        ({"losses": [5.0, 4.0]}, "loss", 3, "the update of step 2"),
        ({"losses": [5.0, None, 3.5, 3.2, 3.0]}, "loss", 2, "the update of step 1"),
        (
            {"batches": Batches(sequences=[8] * 5, labels=[32] * 5, text_checksums=[9] * 5), "losses": [9.0] * 5},
            "sequences",
            1,
            "not taken over the same batch",
        ),
        (
            {"batches": Batches(sequences=[16] * 5, labels=[64] * 5, text_checksums=[1, 2, 9, 4, 5])},
            "text",
            3,
            "order of its samples",
        ),
    ],
)
def test_first_difference_is_named_with_what_it_points_to(
    recorded: Recorded, series: dict[str, Any], quantity: str, step: int, cause: str
) -> None:
    pairing = compare_runs(recorded(), recorded("deepspeed", **series), TOLERANCES)
    assert pairing.first_difference is not None
    assert (pairing.first_difference.quantity, pairing.first_difference.step) == (quantity, step)
    assert cause in str(pairing.points_to)


def test_difference_says_both_values_and_what_was_allowed(recorded: Recorded) -> None:
    parity = parity_of(recorded(), recorded("deepspeed", losses=[5.0, 4.0, 3.6, 3.2, 3.0]), recorded("accelerate"))
    assert parity.verdict == "differs"
    text = "deepspeed differs from native first in step 3: loss 3.6 against 3.5 (2.8e-02 apart, 1e-04 allowed)"
    assert difference_text(parity.comparisons[0], "native") == text
    assert [found for found, _ in findings(parity)] == [text]
    assert parity_rows(parity)[1][3] == "DIFFERS at step 3"
    assert verdict_text(parity) == "NOT the same over 5 steps: deepspeed against native"


def test_what_was_not_recorded_is_no_difference(recorded: Recorded) -> None:
    pairing = compare_runs(recorded(), recorded("deepspeed", gradient_norms=[None] * 5, batches=None), TOLERANCES)
    assert pairing.is_same
    assert [quantity.is_same for quantity in pairing.quantities] == [None, None, None, True, True, None]


def test_a_failed_run_leaves_it_incomplete_unless_others_differ(recorded: Recorded) -> None:
    failed = run_of("accelerate", "failed", "it was killed")
    assert parity_of(recorded(), recorded("deepspeed"), more=(failed,)).verdict == "incomplete"
    other = recorded("deepspeed", losses=[6.0] * 5)
    assert parity_of(recorded(), other, more=(failed,)).verdict == "differs"
    left_out = run_of("accelerate", "left-out", "it has no fsdp here")
    assert parity_of(recorded(), recorded("deepspeed"), more=(left_out,)).verdict == "same"


def test_sixteen_bits_are_allowed_more() -> None:
    assert default_tolerances("bf16-mixed").loss > default_tolerances("fp32").loss
