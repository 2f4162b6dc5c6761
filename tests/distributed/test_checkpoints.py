"""A run that goes on from a checkpoint trains, to the bit, what the run without an interruption trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gradwire.documents.measurement_schema import Measurement
from gradwire.measure.measurement import read_measurement
from tests.distributed.real_runs import lowered, run_words, torchrun

pytestmark = pytest.mark.distributed

DRIVER = Path(__file__).with_name("train_and_resume.py")
SEVERAL_BUCKETS = "communication.overlap={bucket_cap_mb: 0.02, first_bucket_mb: 0.01}"
# Two shards of 37 rows are not equally long.
SPLIT = ("model.hidden_size=36", "model.intermediate_size=37")
PIPELINE = (*SPLIT, "training.batch_size_per_gpu=4")
FSDP = (
    *SPLIT,
    "parallelism.data={strategy: fsdp, shard_group_size: 2}",
    "training.scheduler={type: linear}",
    "training.optimizer=SGD",
)
RUNS: dict[str, tuple[str, ...]] = {
    # More than two ranks: the order of additions on the ring, and with it DDP's buckets, decides the last bits.
    "none": (SEVERAL_BUCKETS, "training.scheduler={type: cosine, warmup_steps: 2}", "training.optimizer=Adam"),
    "powersgd": ("communication.compression={method: powersgd, start_step: 2}", SEVERAL_BUCKETS),
    "int8-static": (
        "communication.compression={method: int8}",
        "communication.overlap={bucket_cap_mb: 0.02, static_graph: true}",
    ),
    "local-sgd": ("communication.compression={method: local-sgd, start_step: 2, local_steps: 3, outer_momentum: 0.3}",),
    "fsdp": FSDP,
    "1f1b-powersgd": (
        *PIPELINE,
        "parallelism.pipeline={stages: 2, chunks: 2}",
        "communication.compression={method: powersgd, start_step: 2, matrix_approximation_rank: 2}",
    ),
    "zbv-ddp": (*PIPELINE, "parallelism.pipeline={stages: 4, chunks: 2, schedule: zbv}"),
}
# Written by 4 ranks, taken up by 2 with twice the micro-steps: the same samples.
RESHARDED: dict[str, tuple[str, tuple[str, ...]]] = {
    "fsdp": ("fsdp", FSDP),
    "zbv-to-1f1b": ("zbv-ddp", (*PIPELINE, "parallelism.pipeline={stages: 2, chunks: 2}")),
    "zbv-to-fsdp": ("zbv-ddp", (*SPLIT, "parallelism.data.strategy=fsdp")),
    "powersgd": ("powersgd", RUNS["powersgd"]),
}
SHARED = ("training.seed=3", "training.max_steps=8")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each plan trained whole, saving after 4 of 8 steps, and again from that checkpoint into `NAME/resumed`."""
    parent = tmp_path_factory.mktemp("checkpoints")
    made = [
        lowered(parent / name, "native", "training.num_gpus=4", "training.gradient_accumulation=2", *SHARED, *sets)
        for name, sets in RUNS.items()
    ]
    torchrun(4, DRIVER, *made).check()
    return parent


@pytest.fixture(scope="module")
def resharded(folders: Path) -> Path:
    """Each of RESHARDED, trained by two ranks from its checkpoint, which four had written."""
    parent = folders / "resharded"
    made = []
    for name, (source, sets) in RESHARDED.items():
        folder = lowered(
            parent / name, "native", "training.num_gpus=2", "training.gradient_accumulation=4", *SHARED, *sets
        )
        (folder / "resume-from").write_text(str(folders / source / "checkpoints" / "step-00000004"), encoding="utf-8")
        made.append(folder)
    torchrun(2, DRIVER, *made).check()
    return parent


def measured(folder: Path) -> Measurement:
    return read_measurement(folder / "measurement.json")


@pytest.mark.parametrize("name", RUNS)
def test_a_resumed_run_equals_the_uninterrupted_one(folders: Path, name: str) -> None:
    whole, resumed = measured(folders / name), measured(folders / name / "resumed")
    assert len(whole.losses) == 8
    assert resumed.losses == whole.losses[4:]
    assert resumed.gradient_norms == whole.gradient_norms[4:]
    assert any("resumed after step 4" in note for note in resumed.notes)
    lines = (folders / name / "resumed" / "steps.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == [5, 6, 7, 8]


def test_a_stages_gradients_are_compressed_from_the_start_step_on(folders: Path) -> None:
    compressed, plain = measured(folders / "1f1b-powersgd"), measured(folders / "zbv-ddp")
    # Step 2 is the first whose gradient is compressed; its loss came from the weights before it.
    assert compressed.losses[:3] == pytest.approx(plain.losses[:3], rel=1e-4)
    assert compressed.losses[3] != pytest.approx(plain.losses[3], rel=1e-6)
    sent = compressed.communication
    assert sent is not None
    assert sent.payload_bytes < sent.gradient_bytes / 2


def test_the_last_two_checkpoints_are_kept(folders: Path) -> None:
    kept = sorted(path.name for path in (folders / "none" / "checkpoints").iterdir())
    assert kept == ["step-00000004", "step-00000008"]


@pytest.mark.parametrize("name", RESHARDED)
def test_another_number_of_ranks_trains_on(folders: Path, resharded: Path, name: str) -> None:
    source, _ = RESHARDED[name]
    expected, found = measured(folders / source).losses[4:], measured(resharded / name)
    if name == "powersgd":
        assert found.losses[0] == pytest.approx(expected[0], rel=1e-3)
    else:
        assert found.losses == pytest.approx(expected, rel=1e-4)
    assert any("the checkpoint is of 4 ranks, this run has 2" in note for note in found.notes)
    assert any("errors of rank 0 of 4 are reset" in note for note in found.notes) == (name == "powersgd")


def test_the_command_line_resumes_and_saves(folders: Path, tmp_path: Path) -> None:
    folder = lowered(tmp_path / "one", "native", "training.num_gpus=1", *SHARED, *RUNS["none"])
    source = folders / "none" / "checkpoints"
    beyond = run_words("python", "-m", "gradwire.train", folder, "--resume", source)
    assert beyond.exit_code == 2
    assert "nothing is left to train; set max_steps higher" in beyond.output
    words = ("--resume", source / "step-00000004", "--save-every", "3")
    run_words("python", "-m", "gradwire.train", folder, *words).check()
    assert any("resumed after step 4" in note for note in measured(folder).notes)
    kept = sorted(path.name for path in (folder / "checkpoints").iterdir())
    assert kept == ["step-00000006", "step-00000008"]


def test_accelerates_checkpoint_keeps_the_gradient_communication(tmp_path: Path) -> None:
    script = Path(__file__).with_name("accelerate_state_script.py")
    finished = torchrun(2, script, tmp_path / "state", ACCELERATE_USE_CPU="true")
    finished.check()
    assert "trained the same again" in finished.output
