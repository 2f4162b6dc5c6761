"""The lab's figures, targets, tables and chart, from rows that were made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.netlab.chart import chart_svg
from benchmarks.netlab.configurations import ALONE, PLAIN, TABLE, TORCH_POWERSGD, choose
from benchmarks.netlab.convergence import convergence_text
from benchmarks.netlab.figures import Place, by_name, figures
from benchmarks.netlab.launch import Site
from benchmarks.netlab.loss_rows import LossRow, TrainingJob, reached
from benchmarks.netlab.network import tbf_words
from benchmarks.netlab.prediction import emulated_step, fit
from benchmarks.netlab.report import csv_text, report_text
from benchmarks.netlab.rows import Link, Row, Sample, read_rows, write_rows
from benchmarks.netlab.targets import TARGETS, outcomes
from gradwire.errors import UsageError

_PLACE = Place(hosts=2, rate_mbit=100.0, mode="emulated")
_LINK = Link(
    hosts=2,
    rate_mbit=100.0,
    congestion_control="reno",
    raw_bits_per_second=95e6,
    round_trip_seconds=1e-5,
    latency_seconds=1e-4,
    bytes_per_second=12e6,
)


def _row(configuration: str, number: int, seconds: float, sent: float = 1e6) -> Row:
    sample = Sample(
        configuration=configuration,
        bucket_cap_mb=5.0,
        round=number,
        step_seconds=[seconds],
        sent_bytes=sent,
        received_bytes=sent,
        cpu_seconds=0.01,
    )
    return Row(link=_LINK, mode="emulated", sample=sample)


def _rows() -> list[Row]:
    """Two rounds; in the second everything takes twice as long."""
    return [
        _row(name, number, seconds * (number + 1), sent)
        for number in range(2)
        for name, seconds, sent in (
            (ALONE, 0.2, 0.0),
            (PLAIN, 2.0, 30e6),
            (TORCH_POWERSGD[4], 0.4, 0.6e6),
            ("powersgd-r4@4.5", 0.25, 0.6e6),
        )
    ]


def test_ratios_pair_the_samples_of_one_round() -> None:
    figure = by_name(figures(_rows())[_PLACE])["powersgd-r4@4.5"]
    assert (figure.scaling_efficiency.low, figure.scaling_efficiency.high) == (0.8, 0.8)
    assert figure.time_to_plain.median == 0.125
    assert figure.time_to_torch[4].median == 0.625
    assert (figure.step_seconds.low, figure.step_seconds.high) == (0.25, 0.5)
    assert figure.fewer_bytes == 50


def test_targets_are_set_beside_what_was_measured_there() -> None:
    found = {(o.target.configuration, o.target.quantity): o for o in outcomes(figures(_rows()))}
    efficiency = found["powersgd-r4@4.5", "scaling efficiency"]
    assert (efficiency.measured, efficiency.target.bound, efficiency.met) == (0.8, 0.86, False)
    time = found["powersgd-r4@4.5", "step time to torch PowerSGD"]
    assert time.met
    assert (time.measured, time.floor, efficiency.floor) == (0.625, 0.5, None)
    assert len(found) == 2


def test_every_target_is_about_a_configuration_of_the_table() -> None:
    assert {target.configuration for target in TARGETS} <= {configuration.name for configuration in TABLE}


def test_the_report_has_a_line_for_every_configuration_and_target() -> None:
    text = report_text(_rows())
    assert all(f"| {name} " in text for name in (ALONE, PLAIN, TORCH_POWERSGD[4], "powersgd-r4@4.5"))
    assert "MISSED" in text
    assert "Compute is emulated" in text
    assert csv_text(_rows()).count("\n") == 1 + len(_rows())


def test_the_same_rows_draw_the_same_chart() -> None:
    first, second = (chart_svg(figures(_rows())) for _ in range(2))
    assert first == second
    assert "powersgd-r4@4.5" in first


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", _rows()[:3])
    write_rows(tmp_path / "rows.jsonl", _rows()[3:])
    assert read_rows(tmp_path / "rows.jsonl") == _rows()


def test_rows_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"link": 1}\n')
    with pytest.raises(UsageError, match=r"rows\.jsonl:1: "):
        read_rows(path)


def test_patterns_choose_configurations_and_the_baselines_come_along() -> None:
    names = [configuration.name for configuration in choose(["ddp@?"])]
    assert names == [ALONE, PLAIN, "ddp@1", "ddp@5", TORCH_POWERSGD[4]]


def test_a_configuration_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(UsageError, match=r"--configurations powersgd-r5: .*powersgd-r4@4.5"):
        choose(["powersgd-r5"])


def test_names_of_configurations_are_unique() -> None:
    assert len({configuration.name for configuration in TABLE}) == len(TABLE)


def test_the_token_bucket_holds_two_milliseconds_of_a_fast_link_and_a_whole_packet_of_a_slow_one() -> None:
    assert tbf_words(1000)[4] == "250000b"
    assert tbf_words(50)[4] == "40960b"


def test_a_loss_is_reached_between_two_evaluations() -> None:
    run = [
        LossRow(configuration="a", seed=1, step=step, seconds=step / 10, validation_loss=loss, sent_bytes=0)
        for step, loss in ((0, 5.0), (10, 4.0), (20, 3.0))
    ]
    found = reached(run, 3.5)
    assert found is not None
    assert (found.step, found.seconds) == (15.0, 1.5)
    assert reached(run, 2.9) is None


def test_the_model_seen_by_the_cost_model_has_the_lab_models_gradients() -> None:
    step = emulated_step(0.21)
    assert sum(gradient.elements for gradient in step.gradients) == 7_583_544
    assert step.gradients[-1].ready_seconds == pytest.approx(0.21)


def test_a_compression_cost_is_found_from_the_fitted_link_alone() -> None:
    predictions, methods = fit(_rows(), fitted_rates=[100.0])
    own = next(prediction for prediction in predictions if prediction.configuration == "powersgd-r4@4.5")
    # The median of the two rounds' steps, 0.375 s, is what the cost is fitted to.
    assert own.error == pytest.approx(0.0, abs=1e-6)
    assert own.fitted
    fitted = next(method for method in methods if method.name == "powersgd-r4@4.5")
    assert fitted.compression_seconds_per_byte > 0
    assert next(method for method in methods if method.name == PLAIN).compression_seconds_per_byte == 0


def test_equal_steps_and_equal_loss_are_told_apart() -> None:
    names = (PLAIN, "powersgd-r4@4.5")
    job = TrainingJob(
        configurations=tuple(row for row in TABLE if row.name in names),
        seeds=(1,),
        steps=20,
        most_steps=40,
        block_steps=10,
        batch_size_per_gpu=4,
        learning_rate=1e-3,
        start_step=2,
        compute_seconds=0.21,
    )
    curves = {PLAIN: (2.0, (5.0, 4.0, 3.0)), "powersgd-r4@4.5": (0.2, (5.0, 4.2, 3.4, 2.6))}
    rows = [
        LossRow(
            configuration=name,
            seed=1,
            step=10 * number,
            seconds=10 * number * step_seconds,
            validation_loss=loss,
            sent_bytes=0,
        )
        for name, (step_seconds, losses) in curves.items()
        for number, loss in enumerate(losses)
    ]
    text = convergence_text(rows, job, Site(hosts=2, rate_mbit=100.0, congestion_control="reno"))
    line = next(line for line in text.splitlines() if line.startswith("| powersgd-r4@4.5 "))
    # At step 20: 4 s against 40 s, loss 3.4; DDP's 3.0 at step 25, after 5 s.
    assert [cell.strip() for cell in line.split("|")[2:8]] == ["3.400", "4.0", "1/10.00", "25", "5.0", "1/8.00"]
    assert text.rstrip().endswith("1/5.5 of its time. met")
