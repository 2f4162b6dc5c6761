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
RUNS: dict[str, tuple[str, ...]] = {
    # Three ranks: the order of additions on the ring, and with it DDP's buckets, decides the last bits.
    "none": (SEVERAL_BUCKETS,),
    "powersgd": ("communication.compression={method: powersgd, start_step: 2}", SEVERAL_BUCKETS),
    "int8-static": (
        "communication.compression={method: int8}",
        "communication.overlap={bucket_cap_mb: 0.02, static_graph: true}",
    ),
    "local-sgd": ("communication.compression={method: local-sgd, start_step: 2, local_steps: 3, outer_momentum: 0.3}",),
    "cosine": ("training.scheduler={type: cosine, warmup_steps: 2}", "training.optimizer=Adam"),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each plan trained whole, saving after 5 of 10 steps, and again from that checkpoint into `NAME/resumed`."""
    parent = tmp_path_factory.mktemp("checkpoints")
    made = [
        lowered(
            parent / name, "native", "training.num_gpus=3", "training.gradient_accumulation=2", "training.seed=3", *sets
        )
        for name, sets in RUNS.items()
    ]
    torchrun(3, DRIVER, *made).check()
    return parent


def measured(folder: Path) -> Measurement:
    return read_measurement(folder / "measurement.json")


@pytest.mark.parametrize("name", RUNS)
def test_a_resumed_run_equals_the_uninterrupted_one(folders: Path, name: str) -> None:
    whole, resumed = measured(folders / name), measured(folders / name / "resumed")
    assert len(whole.losses) == 10
    assert resumed.losses == whole.losses[5:]
    assert resumed.gradient_norms == whole.gradient_norms[5:]
    assert any("resumed after step 5" in note for note in resumed.notes)
    lines = (folders / name / "resumed" / "steps.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == [6, 7, 8, 9, 10]


def test_the_last_two_checkpoints_are_kept(folders: Path) -> None:
    kept = sorted(path.name for path in (folders / "none" / "checkpoints").iterdir())
    assert kept == ["step-00000005", "step-00000010"]


def test_another_number_of_ranks_keeps_the_weights_and_says_what_starts_anew(folders: Path, tmp_path: Path) -> None:
    folder = lowered(tmp_path / "one", "native", "training.num_gpus=2", *RUNS["powersgd"])
    source = folders / "powersgd" / "checkpoints" / "step-00000005"
    torchrun(2, "-m", "gradwire.train", folder, "--resume", source).check()
    resumed = measured(folder)
    before = measured(folders / "powersgd").losses[5]
    assert before is not None
    assert resumed.losses[0] == pytest.approx(before, abs=0.3)
    text = " ".join(resumed.notes)
    assert "errors of rank 0 of 3 are reset" in text
    assert "the checkpoint is of 3 ranks, this run has 2" in text


def test_what_cannot_be_resumed_is_said(folders: Path, tmp_path: Path) -> None:
    source = folders / "none" / "checkpoints"
    wider = lowered(tmp_path / "wider", "native", "training.num_gpus=1", "model.hidden_size=64")
    refused = run_words("python", "-m", "gradwire.train", wider, "--resume", source / "step-00000005")
    assert refused.exit_code == 2
    assert "is of another training (model: " in refused.output
    same = lowered(tmp_path / "same", "native", "training.num_gpus=1")
    over = run_words("python", "-m", "gradwire.train", same, "--resume", source)
    assert over.exit_code == 2
    assert "nothing is left to train; set max_steps higher" in over.output


def test_accelerates_checkpoint_keeps_the_gradient_communication(tmp_path: Path) -> None:
    script = Path(__file__).with_name("accelerate_state_script.py")
    finished = torchrun(2, script, tmp_path / "state", ACCELERATE_USE_CPU="true")
    finished.check()
    assert "trained the same again" in finished.output
