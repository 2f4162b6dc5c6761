"""The measurement of a command that was watched from outside, from what its ranks wrote."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gradwire.cli.main import main
from gradwire.compare.gather import find_measurements
from gradwire.documents.measurement_schema import Energy, Hardware
from gradwire.errors import UsageError
from gradwire.launch.watched import Watched
from gradwire.measure.document import document_text
from gradwire.measure.marks import Mark
from gradwire.measure.measurement import read_measurement
from gradwire.measure.rank_log import (
    RankFacts,
    RankLog,
    RankReader,
    RankShape,
    RankStart,
    RankStep,
    RankSubject,
    RankWriter,
)
from gradwire.measure.steps import read_steps
from gradwire.measure.watched import finished_steps, missing_ranks, one_run, watched_measurement

SHAPE = RankShape(parameters=10, embedding_parameters=4, layers=2, hidden_size=3, output_parameters=1, reason=None)
SUBJECT = RankSubject(
    shape=SHAPE,
    products="bf16",
    model="Net with 10 parameters",
    optimizer="AdamW",
    precision="bf16 parameters",
    strategy="fsdp",
    compile=True,
    gradient_checkpointing=True,
)


def start(rank: int = 0, world_size: int = 2, **given: Any) -> RankStart:
    values: dict[str, Any] = {
        "rank": rank,
        "world_size": world_size,
        "ranks_on_node": world_size,
        "pid": 100 + rank,
        "script": "train.py",
        "started_at": "2026-05-01T12:00:00+00:00",
        "device": "cuda",
        "device_name": "NVIDIA H200",
        "threads": 1,
        "warmup_steps": 1,
        "library": "native",
        "versions": {"torch": "2.13.0"},
        **given,
    }
    return RankStart(**values)


MARKS: dict[str, tuple[Mark, ...]] = {"excluded": ("aside-begin", "aside-end"), "input_wait": ("loader-end",)}


def step(number: int, passes: float, *, tokens: int | None = 60, samples: int | None = 4, **parts: float) -> RankStep:
    """A step of two passes; `parts` are further seconds before them."""
    marks = [mark for part in parts for mark in MARKS[part]]
    before = [seconds for part, took in parts.items() for seconds in [0.0] * (len(MARKS[part]) - 1) + [took]]
    return RankStep(
        step=number,
        marks=[*marks, "pass", "pass"],
        seconds=[*before, 0.0, passes],
        passes=2,
        samples=samples,
        tokens=tokens,
        slots=None if tokens is None else 64,
    )


def facts(**given: Any) -> RankFacts:
    values: dict[str, Any] = {
        "peak_process_bytes": 7,
        "peak_device_allocated_bytes": 5,
        "peak_device_reserved_bytes": 6,
        "joules": 300.0,
        "joules_seconds": 2.0,
        "joules_device": "a",
        "joules_reason": None,
        "subject": SUBJECT,
        "notes": [],
        **given,
    }
    return RankFacts(**values)


def log(
    rank: int, seconds: list[float], *, world_size: int = 2, said: RankFacts | None = None, **counts: Any
) -> RankLog:
    return RankLog(
        start=start(rank, world_size),
        steps=[step(number, took, **counts).seen() for number, took in enumerate(seconds, start=1)],
        facts=facts(joules_device=str(rank)),
    )


@pytest.fixture
def measured(machine: Callable[[str], Hardware]) -> Callable[..., Any]:
    def build(*logs: RankLog) -> Any:
        found = watched_measurement(logs, hardware=machine("NVIDIA H200"), notes=["first"])
        # It keeps its schema.
        document_text(found, "measurement")
        return found

    return build


def test_ranks_add_up_and_a_step_lasts_as_long_as_on_the_slowest(measured: Callable[..., Any]) -> None:
    found = measured(log(0, [9.0, 1.0, 2.0]), log(1, [9.0, 2.0, 1.0]))
    assert (found.steps.trained, found.steps.warmup, found.steps.timed) == (3, 1, 2)
    assert found.step_seconds.each == [9.0, 2.0, 2.0]
    throughput = found.throughput
    assert (throughput.timed_samples, throughput.timed_tokens, throughput.timed_slots) == (16, 240, 256)
    assert (throughput.tokens_per_second, throughput.tokens_per_second_per_rank) == (60.0, 30.0)
    assert found.energy == Energy(joules=600.0, joules_per_token=2.5, mean_watts_per_device=150.0, reason=None)
    assert (found.memory.peak_process_bytes, found.memory.peak_device_allocated_bytes) == (7, 5)


def test_the_workload_is_what_was_seen_and_the_same_at_each_size(measured: Callable[..., Any]) -> None:
    two, one = measured(log(0, [1.0] * 3), log(1, [1.0] * 3)), measured(log(0, [1.0] * 3, world_size=1))
    workload = two.workload
    assert (workload.model, workload.optimizer, workload.precision) == (
        "Net with 10 parameters",
        "AdamW",
        "bf16 parameters",
    )
    assert (workload.batch_size_per_gpu, workload.gradient_accumulation, workload.sequence_length) == (2, 2, 16)
    assert (workload.strategy, workload.compile, workload.gradient_checkpointing) == ("fsdp", True, True)
    assert (two.recipe_name, two.backend, two.world.process_group_backend) == ("train.py", "native", "nccl")
    assert one.workload == workload
    assert one.recipe_sha256 == two.recipe_sha256


def test_a_part_that_was_excluded_is_reported_and_in_no_step(measured: Callable[..., Any]) -> None:
    steps = [step(1, 5.0, excluded=90.0), step(2, 1.0, excluded=7.0), step(3, 1.0, input_wait=1.0)]
    seen = [each.seen() for each in steps]
    found = measured(RankLog(start=start(world_size=1), steps=seen, facts=facts()))
    assert found.steps.excluded_seconds == 7.0
    assert found.step_seconds.each == [5.0, 1.0, 2.0]
    assert (found.time_split.input_wait, found.time_split.compute) == (0.5, 1.0)


def test_counts_that_nobody_could_tell_are_no_rates(measured: Callable[..., Any]) -> None:
    images = measured(log(0, [1.0, 1.0], world_size=1, tokens=None))
    assert (images.throughput.samples_per_second, images.throughput.tokens_per_second) == (4.0, None)
    assert images.throughput.timed_slots is None
    assert any("is not tokens" in note for note in images.notes)
    nothing = measured(log(0, [1.0, 1.0], world_size=1, tokens=None, samples=None))
    assert (nothing.throughput.samples_per_second, nothing.throughput.tokens_per_second) == (None, None)
    assert any("only steps were timed" in note for note in nothing.notes)


def test_a_machine_that_slept_spoils_no_figure(measured: Callable[..., Any]) -> None:
    found = measured(log(0, [1.0, 1.0, 9000.0, 1.0], world_size=1))
    assert (found.steps.timed, found.step_seconds.maximum, found.throughput.tokens_per_second) == (2, 1.0, 60.0)
    assert any("rank 0: step 3 took up to 9,000 s" in note for note in found.notes)


def test_a_killed_rank_ends_the_run_at_the_last_step_that_all_finished(measured: Callable[..., Any]) -> None:
    logs = [
        log(0, [1.0] * 4),
        RankLog(start=start(1), steps=[step(number, 1.0).seen() for number in (1, 2)], facts=None),
    ]
    assert [each.step for each in finished_steps(logs, after=0)] == [1, 2]
    assert finished_steps(logs, after=1)[0].tokens == 120
    found = measured(*logs)
    assert (found.steps.trained, found.steps.timed) == (2, 1)
    assert found.energy.joules is None


def test_a_run_with_no_timed_step_says_so(measured: Callable[..., Any]) -> None:
    found = measured(log(0, [1.0], world_size=1))
    assert found.throughput.tokens_per_second is None
    assert any("no step was timed: 1 were seen" in note for note in found.notes)


def test_ranks_that_are_missing_make_no_run(measured: Callable[..., Any]) -> None:
    assert "stepped an optimizer" in str(missing_ranks([]))
    assert "1 of 2 ranks" in str(missing_ranks([log(0, [1.0])]))
    assert finished_steps([log(0, [1.0])], after=0) == []
    with pytest.raises(ValueError, match="1 of 2 ranks"):
        measured(log(0, [1.0]))


def test_processes_without_a_group_are_several_runs_and_the_first_is_taken() -> None:
    logs = [log(0, [1.0], world_size=1), log(0, [2.0], world_size=1)]
    taken, notes = one_run(logs)
    assert taken == logs[:1]
    assert "2 processes trained, each on its own" in notes[0]
    assert one_run([]) == ([], [])
    assert one_run(logs[:1]) == (logs[:1], [])


def test_ranks_that_began_anew_count_since_then() -> None:
    again = msgspec.structs.replace(log(1, [3.0]), start=start(1, pid=50, started_at="2026-05-01T12:30:00+00:00"))
    taken, notes = one_run([log(0, [1.0]), log(1, [1.0]), again])
    assert taken == [log(0, [1.0]), again]
    assert notes == ["ranks began anew once; the figures are since the last start"]


def test_of_fewer_ranks_that_began_anew_none_is_of_the_start_before() -> None:
    before = [log(rank, [1.0], world_size=4) for rank in range(4)]
    later = {"started_at": "2026-05-01T12:30:00+00:00", "attempt": 1}
    after = [
        msgspec.structs.replace(log(rank, [2.0]), start=start(rank, 2, pid=200 + rank, **later)) for rank in range(2)
    ]
    taken, notes = one_run([*before, *after])
    assert (taken, len(notes)) == (after, 1)
    # As many as before, of which one has not got to its first step.
    late = msgspec.structs.replace(before[0], start=start(0, 4, pid=300, **later))
    assert missing_ranks(one_run([*before, late])[0]) is not None


def test_steps_are_written_anew_when_ranks_begin_anew(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    for pid, seconds in ((1, [1.0, 2.0, 3.0]), (2, [4.0, 5.0])):
        writer = RankWriter(watched.ranks, start(0, 2, pid=pid, attempt=pid, device="cpu"))
        other = RankWriter(watched.ranks, start(1, 2, pid=pid + 9, attempt=pid, device="cpu"))
        for number, took in enumerate(seconds, start=1):
            for rank in (writer, other):
                rank.write(step(number, took))
        watched.look()
    assert [each.seconds for each in read_steps(tmp_path).steps] == [4.0, 5.0]


def test_a_full_disk_ends_the_writing_and_raises_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    watched = Watched(tmp_path)
    ranks = [RankWriter(watched.ranks, start(rank, device="cpu")) for rank in range(2)]
    for rank in ranks:
        rank.write(step(1, 1.0))
        rank.write(facts())
    watched.look()
    for rank in ranks:
        rank.write(step(2, 1.0))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (read_steps_size(tmp_path) + 10, limits[1]))
    try:
        for _ in range(2):
            watched.look()
        measurement, why = watched.end()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert measurement is None
    assert why == f"{tmp_path}/measurement.json: cannot be written: File too large"
    assert capsys.readouterr().err == (
        f"gradwire measure: no more steps are written down: {tmp_path}/steps.jsonl: cannot be written: File too large\n"
    )
    log = read_steps(tmp_path)
    assert (len(log.steps), log.is_torn) == (1, True)


def read_steps_size(folder: Path) -> int:
    return (folder / "steps.jsonl").stat().st_size


def test_what_a_killed_watcher_left_is_put_together(tmp_path: Path) -> None:
    for rank in range(2):
        writer = RankWriter(tmp_path / "ranks", start(rank, device="cpu"))
        writer.write(facts())
        for number in range(1, 4 + rank):
            writer.write(step(number, 1.0))
    (tmp_path / "steps.jsonl").write_text('{"step":1', encoding="utf-8")
    with pytest.raises(UsageError, match=r"`gradwire measure --out .*` makes it of what the ranks of a"):
        find_measurements([tmp_path])
    assert main(["measure", "--out", str(tmp_path)]) == 0
    found = read_measurement(find_measurements([tmp_path])[0])
    assert (found.steps.trained, len(read_steps(tmp_path).steps)) == (3, 3)
    assert found.notes[0] == "put together from what its ranks wrote down"


def test_a_line_that_no_rank_wrote_is_said_once_and_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watched = Watched(tmp_path)
    (watched.ranks / "00000-1.jsonl").write_text("hello\n", encoding="utf-8")
    for _ in range(2):
        watched.look()
    assert "not what ranks write" in str(watched.end()[1])
    assert capsys.readouterr().err.count("not what ranks write") == 1


def test_what_a_rank_writes_is_read_while_it_grows(tmp_path: Path) -> None:
    reader = RankReader(tmp_path)
    assert reader.read() == []
    writer = RankWriter(tmp_path, start())
    assert reader.read() == [RankLog(start=start(), steps=[], facts=None)]
    writer.write(step(1, 1.0))
    writer.write(facts(notes=["old"]))
    file = next(tmp_path.glob("*.jsonl"))
    with file.open("ab") as torn:
        torn.write(b'{"type":"step","st')
    for _ in range(2):
        assert reader.read() == [RankLog(start=start(), steps=[step(1, 1.0).seen()], facts=facts(notes=["old"]))]
    os.truncate(file, file.stat().st_size - len(b'{"type":"step","st'))
    writer.write(facts(notes=["new"]))
    assert reader.read()[0].facts == facts(notes=["new"])


def test_a_file_that_no_rank_wrote_is_refused(tmp_path: Path) -> None:
    (tmp_path / "00000-1.jsonl").write_text("hello\n", encoding="utf-8")
    with pytest.raises(msgspec.DecodeError):
        RankReader(tmp_path).read()


def test_machines_that_share_a_folder_write_each_step_once(tmp_path: Path) -> None:
    machines = [Watched(tmp_path), Watched(tmp_path)]
    ranks = [RankWriter(machines[0].ranks, start(rank, device="cpu")) for rank in range(2)]
    for number in range(1, 4):
        for rank in ranks:
            rank.write(step(number, 1.0))
        for machine in machines:
            machine.look()
    assert [each.step for each in read_steps(tmp_path).steps] == [1, 2, 3]


def test_nothing_is_left_of_a_command_that_did_not_train(tmp_path: Path) -> None:
    assert Watched(tmp_path).end()[0] is None
    assert list(tmp_path.iterdir()) == []
