"""A cause of slowness that was planted into a real run is the first that its report names."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from gradwire.cli.main import main
from gradwire.measure.measurement import read_measurement
from tests.distributed.real_runs import lowered, run_words, torchrun

pytestmark = [pytest.mark.distributed, pytest.mark.alone]

DRIVER = Path(__file__).with_name("train_with_plants.py")
SIZES = (2, 4)
SHORT = ("training.max_steps=8", "training.gradient_accumulation=1", "training.batch_size_per_gpu=4")
# Weights that take longer to send than one short sequence takes to train.
WIDE = (
    "model={family: gpt2, hidden_size: 512, layers: 1, attention_heads: 1, sequence_length: 8, tie_embeddings: true}",
    "training.optimizer=SGD",
    "training.gradient_clip=null",
    "training.gradient_accumulation=1",
    "training.max_steps=12",
)
# What train_with_plants.py plants into each step: seconds of sleep, and bytes a second of the link.
SLEEP_SECONDS = 0.15
LINK_BYTES_PER_SECOND = 1.25e6
# How far the seconds in the report may be off them. On a quiet machine it is a fiftieth; ten processes too many for the
# cores, as beside other tests, make it a tenth.
WITHIN = 1 / 3
SLOW_LO = 'ip link set lo mtu 1500 up && tc qdisc add dev lo root tbf rate {rate} burst 32kb limit 4mb && exec "$@"'


def reported(*folders: Path) -> list[dict[str, Any]]:
    """Return the cells of `gradwire report`, the largest size last."""
    with redirect_stdout(io.StringIO()) as said:
        assert main(["report", *map(str, folders), "--json"]) == 0
    cells: list[dict[str, Any]] = json.loads(said.getvalue())["cells"]
    return sorted(cells, key=lambda cell: cell["num_gpus"])


def first_cause(cell: dict[str, Any]) -> dict[str, Any]:
    """Return the first cause that is not the machine's.

    Four processes on two cores are a crowd, and other work beside them makes its share of the step anything: whether it
    is named before or after what was planted is not for a real run to decide; tests/compare/test_cause.py does.
    """
    causes: list[dict[str, Any]] = [cause for cause in cell["causes"] if cause["kind"] != "crowded-machine"]
    assert causes, cell["time_split"]
    return causes[0]


@pytest.fixture(scope="module", params=SIZES)
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two or of four processes in one start; the folder of each is named for its cause."""
    size: int = request.param
    parent = tmp_path_factory.mktemp(f"planted-{size}")
    on = f"training.num_gpus={size}"
    few_chunks = f"parallelism.pipeline={{stages: {size}, chunks: {size}}}"
    folders = [
        lowered(parent / "slow-loader", "native", *SHORT, on),
        lowered(parent / "straggler", "native", *SHORT, on),
        lowered(parent / "slow-link", "native", *SHORT, on),
        lowered(parent / "few-chunks", "native", *SHORT, on, "training.batch_size_per_gpu=8", few_chunks),
        lowered(parent / "clock-jump", "native", *SHORT, on),
        lowered(parent / "small-batch", "native", *WIDE, on, "training.batch_size_per_gpu=1"),
    ]
    torchrun(size, DRIVER, *folders).check()
    return parent


def size_of(runs: Path) -> int:
    return int(read_measurement(runs / "straggler" / "measurement.json").world.world_size)


def test_a_slow_loader_is_named(runs: Path) -> None:
    [cell] = reported(runs / "slow-loader")
    assert first_cause(cell)["kind"] == "input-bound"
    assert "more loader workers" in first_cause(cell)["remedies"][0]["action"]
    assert cell["time_split"]["input_wait"] >= SLEEP_SECONDS
    assert cell["time_split"]["input_wait"] == pytest.approx(SLEEP_SECONDS, rel=WITHIN)


def test_a_straggler_is_named_with_its_rank(runs: Path) -> None:
    [cell] = reported(runs / "straggler")
    assert first_cause(cell)["kind"] == "straggler"
    last = size_of(runs) - 1
    assert cell["time_split"]["slowest_rank"] == last
    assert f"rank {last}" in first_cause(cell)["evidence"]
    assert cell["time_split"]["straggler_wait"] == pytest.approx(SLEEP_SECONDS, rel=WITHIN)


def test_a_throttled_link_is_named_with_what_compression_would_bring(runs: Path) -> None:
    """A DDP hook holds the gradients back, as a 10 Mbit/s link would: this runs on any machine."""
    [cell] = reported(runs / "slow-link")
    assert first_cause(cell)["kind"] == "communication-bound"
    gains = {
        remedy["action"].partition(",")[0]: remedy["predicted_speedup"] for remedy in first_cause(cell)["remedies"]
    }
    found, split = read_measurement(runs / "slow-link" / "measurement.json"), cell["time_split"]
    assert found.communication is not None
    on_the_wire = found.communication.wire_bytes / LINK_BYTES_PER_SECOND
    assert split["exposed_communication"] + split["straggler_wait"] == pytest.approx(on_the_wire, rel=WITHIN)
    assert 1 < gains["communication.compression.method: bf16"] < gains["communication.compression.method: powersgd"]


def test_a_pipeline_with_few_chunks_is_named(runs: Path) -> None:
    [cell] = reported(runs / "few-chunks")
    assert first_cause(cell)["kind"] == "pipeline-bubble"
    assert f"chunks: {2 * size_of(runs)}" in first_cause(cell)["remedies"][0]["action"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The whole batch of two and of four processes, trained by one; keyed by the number of processes."""
    parent = tmp_path_factory.mktemp("alone")
    folders = {
        size: lowered(parent / str(size), "native", *WIDE, f"training.batch_size_per_gpu={size}", "training.num_gpus=1")
        for size in SIZES
    }
    run_words(sys.executable, DRIVER, *folders.values()).check()
    return folders


def test_a_batch_spread_too_thin_is_named(runs: Path, alone: dict[int, Path]) -> None:
    cell = reported(alone[size_of(runs)], runs / "small-batch")[-1]
    assert cell["scaling_efficiency"] < 0.7
    assert first_cause(cell)["kind"] == "batch-too-small"


def test_a_clock_that_was_put_forward_is_in_no_figure(runs: Path) -> None:
    """On the last rank, by two hours, in the sixth of eight steps."""
    found = read_measurement(runs / "clock-jump" / "measurement.json")
    assert (found.steps.trained, found.steps.timed) == (8, 5)
    split, traffic = found.time_split, found.communication
    assert split is not None and traffic is not None and found.micro_step_seconds is not None
    longest = (found.step_seconds.maximum, found.micro_step_seconds.maximum, traffic.communication_seconds)
    assert max(seconds or 0.0 for seconds in (*longest, split.compute, split.straggler_wait)) < 3600
    assert any(note.startswith(f"rank {size_of(runs) - 1}: step 6 took up to 7,200 s") for note in found.notes)


@pytest.fixture(scope="module")
def slow_link(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose processes talk through a loopback interface of their own, in a network namespace, at 10 Mbit/s."""
    slow = ["unshare", "-n", "sh", "-c", SLOW_LO.format(rate="10mbit"), "sh"]
    if shutil.which("tc") is None or subprocess.run([*slow, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs the right to make network namespaces, and tc with tbf")
    folder = lowered(tmp_path_factory.mktemp("planted") / "slow-link", "native", *SHORT)
    run_words(*slow, "torchrun", "--standalone", "--nproc-per-node=2", "-m", "gradwire.train", folder).check()
    return folder


def test_a_slow_link_is_named(slow_link: Path) -> None:
    [cell] = reported(slow_link)
    assert first_cause(cell)["kind"] == "communication-bound"


def test_exposed_communication_by_timing_agrees_with_doing_without(slow_link: Path) -> None:
    measurement = read_measurement(slow_link / "measurement.json")
    split, timed = measurement.time_split, measurement.communication
    assert split is not None
    assert split.exposed_communication is not None
    assert timed is not None
    assert timed.exposed_seconds is not None
    assert timed.communication_seconds is not None
    # Nearly half a second of each step is the wire's; a busy machine adds a few hundredths to one or the other.
    without = split.exposed_communication + split.straggler_wait
    assert timed.exposed_seconds == pytest.approx(without, rel=0.3)
    # All gradients are in one bucket, which the last of them completes: nothing is hidden.
    assert timed.exposed_seconds == pytest.approx(timed.communication_seconds, rel=0.3)


def test_parts_sum_to_the_step_in_real_runs(runs: Path) -> None:
    for folder in sorted(runs.iterdir()):
        measurement = read_measurement(folder / "measurement.json")
        split, mean = measurement.time_split, measurement.step_seconds.mean
        assert split is not None
        parts = (
            split.input_wait,
            split.compute,
            split.exposed_communication or 0.0,
            split.pipeline_bubble,
            split.optimizer,
            split.straggler_wait,
            split.other,
        )
        assert sum(parts) == pytest.approx(mean, rel=1e-6), folder
