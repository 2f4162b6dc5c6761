"""What compression would bring on the link that was measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gradwire.compare.cause import causes_of
from gradwire.compare.compression_gain import gains_of
from gradwire.compare.situation import Situation, situation_of
from gradwire.documents.measurement_schema import TimeSplit
from gradwire.documents.recipe_schema import Compression, Model
from gradwire.measure.advice import model_step
from gradwire.measure.communication_cost import Wire, step_seconds
from gradwire.measure.method_costs import method_cost
from gradwire.measure.time_split import PARTS, step_of
from gradwire.recipe.model_shapes import parameter_count

Make = Callable[..., Any]
MODEL = Model(family="gpt2", hidden_size=256, layers=4, attention_heads=4, sequence_length=64)
# A quarter of a gigabit.
RATE = 31.25e6


def split(**seconds: float) -> TimeSplit:
    return TimeSplit(**{**dict.fromkeys(PARTS, 0.0), **seconds}, slowest_rank=None)


@pytest.fixture(scope="module")
def situation(ran: Make) -> Situation:
    measurement = ran(num_gpus=4, batch_size_per_gpu=8, model=MODEL)[1]
    found = situation_of(measurement, scaling="weak")
    return dataclasses.replace(found, link_bytes_per_second=RATE, gradient_bytes=4 * parameter_count(MODEL))


def measured_split(situation: Situation, compute: float = 0.05) -> TimeSplit:
    """What plain DDP would measure on this link, by the same model."""
    step = model_step(MODEL, compute_seconds=compute, bytes_per_element=4)
    wire = Wire(world_size=situation.num_gpus, bytes_per_second=RATE, latency_seconds=0.0)
    whole = step_seconds(step, method_cost(Compression()), wire, bucket_cap_bytes=None)
    return split(compute=compute, exposed_communication=whole - compute, optimizer=0.01)


def test_the_gain_is_that_of_the_whole_step_on_the_measured_link(situation: Situation) -> None:
    measured = measured_split(situation)
    gains = {gain.method: gain.speedup for gain in gains_of(measured, situation, ("bf16", "powersgd")) or []}
    without_any = step_of(measured) / (step_of(measured) - (measured.exposed_communication or 0.0))
    assert 1.5 < gains["bf16"] < gains["powersgd"] <= without_any + 1e-9


def test_a_fast_link_leaves_nothing_to_gain(situation: Situation) -> None:
    fast = dataclasses.replace(situation, link_bytes_per_second=1e12)
    gains = gains_of(split(compute=0.05, exposed_communication=0.001), fast, ("bf16", "powersgd"))
    assert gains is not None
    assert all(gain.speedup < 1.02 for gain in gains)
    causes = causes_of(split(compute=0.05, exposed_communication=0.03), fast)
    assert not any("compression" in remedy.action for remedy in causes[0].remedies)


def test_accumulation_hides_no_more_than_its_last_micro_step(ran: Make, situation: Situation) -> None:
    twice = dataclasses.replace(
        situation, workload=msgspec.structs.replace(situation.workload, gradient_accumulation=2)
    )
    measured = measured_split(situation)
    once = {gain.method: gain.speedup for gain in gains_of(measured, situation, ("bf16",)) or []}
    doubled = split(compute=0.1, exposed_communication=measured.exposed_communication or 0.0, optimizer=0.01)
    more = {gain.method: gain.speedup for gain in gains_of(doubled, twice, ("bf16",)) or []}
    assert 1 < more["bf16"] < once["bf16"]


@pytest.mark.parametrize(
    "change", [{"link_bytes_per_second": None}, {"num_gpus": 1}, {"model": "the script's own"}, {"exposed": None}]
)
def test_without_link_or_model_there_is_no_prediction(situation: Situation, change: dict[str, Any]) -> None:
    measured = measured_split(situation)
    if "model" in change:
        situation = dataclasses.replace(situation, workload=msgspec.structs.replace(situation.workload, **change))
    elif "exposed" in change:
        measured = TimeSplit(**{**dict.fromkeys(PARTS, 0.0), "exposed_communication": None}, slowest_rank=None)
    else:
        situation = dataclasses.replace(situation, **change)
    assert gains_of(measured, situation, ("bf16",)) is None


def test_the_report_names_the_link_and_the_gain(situation: Situation) -> None:
    cause = causes_of(measured_split(situation), situation)[0]
    assert cause.kind == "communication-bound"
    actions = {remedy.action: remedy.predicted_speedup for remedy in cause.remedies}
    gain = actions["communication.compression.method: bf16, by the cost model at 31.2 MB/s"]
    assert gain is not None and gain > 1.5
