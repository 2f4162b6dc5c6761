"""`gradwire.train` and the example scripts really train on two processes under each launcher, and learn."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from gradwire.launch.probe import free_port
from gradwire.measure.measurement import read_measurement
from gradwire.plan import Backend
from tests.distributed.real_runs import Finished, lowered, run_words, torchrun

pytestmark = pytest.mark.distributed

References = Mapping[str, Mapping[str, Sequence[float]]]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_accelerate_launch_needs_no_environment_and_no_fixed_place(tmp_path: Path, references: References) -> None:
    compiler = ("training.compile=true", "training.compile_backend=aot_eager", "training.compile_regional=false")
    written = lowered(tmp_path / "written", "accelerate", *compiler)
    folder = shutil.copytree(written, tmp_path / "moved")
    command = ("accelerate", "launch", "--config_file", folder / "accelerate.yaml", "-m", "gradwire.train")
    run_words(*command, folder / "plan.json").check()
    check_measured(folder)
    # Accelerate compiles, and nobody else: nothing within what it compiled.
    assert "torch.compile, aot_eager: 1 module(s)" in (read_measurement(folder / "measurement.json").notes or ())
    check_equals(folder, references)


def test_accelerate_launch_with_deepspeed_needs_no_environment(tmp_path: Path, references: References) -> None:
    folder = lowered(tmp_path / "out", "accelerate", "parallelism.data.strategy=zero2")
    command = ("accelerate", "launch", "--config_file", folder / "accelerate.yaml", "-m", "gradwire.train")
    run_words(*command, folder / "plan.json").check()
    check_measured(folder)
    check_equals(folder, references)


def test_deepspeed_launcher_may_append_local_rank(tmp_path: Path, references: References) -> None:
    folder = lowered(tmp_path / "out", "deepspeed", "parallelism.data.strategy=zero1")
    launch = (folder / "launch.sh").read_text(encoding="utf-8")
    (folder / "launch.sh").write_text(launch.replace("--no_local_rank ", ""), encoding="utf-8")
    elsewhere = tmp_path / "elsewhere"
    run_words("sh", folder / "launch.sh", "--out", elsewhere).check()
    check_measured(elsewhere)
    check_equals(elsewhere, references)


def test_one_process_needs_no_launcher(tmp_path: Path) -> None:
    folder = lowered(tmp_path / "out", "native", "training.num_gpus=1", "parallelism.pipeline={chunks: 2}")
    run_words("python", "-m", "gradwire.train", folder).check()
    check_measured(folder, world_size=1)


def test_accelerate_example_learns_with_compressed_gradients(tmp_path: Path) -> None:
    powersgd = "communication.compression={method: powersgd, start_step: 2}"
    several_buckets = "communication.overlap={static_graph: true, bucket_cap_mb: 0.05}"
    folder = lowered(tmp_path / "out", "accelerate", powersgd, several_buckets)
    script = EXAMPLES / "accelerate_script.py"
    finished = run_words("accelerate", "launch", "--config_file", folder / "accelerate.yaml", script, folder)
    check_losses(finished, r"loss (\d\S+)")


def test_deepspeed_example_learns(tmp_path: Path) -> None:
    folder = lowered(tmp_path / "out", "deepspeed", "parallelism.data.strategy=zero2")
    finished = run_words(
        *("deepspeed", "--num_gpus", "2", "--master_port", str(free_port()), EXAMPLES / "deepspeed_script.py"),
        folder / "deepspeed.json",
        DS_ACCELERATOR="cpu",
    )
    check_losses(finished, r"loss (\d\S+)")


def test_trainer_example_learns(tmp_path: Path) -> None:
    folder = lowered(tmp_path / "out", "trainer", "parallelism.data.strategy=zero3", "training.max_steps=20")
    finished = torchrun(2, EXAMPLES / "trainer_script.py", folder)
    check_losses(finished, r"'loss': '?(\d[\d.]*)")


# Backend, then parallelism.data; NVME stands for a folder.
ON_A_GPU: dict[str, tuple[Backend, str]] = {
    "fsdp": ("accelerate", "{strategy: fsdp}"),
    "fsdp-offloaded": ("accelerate", "{strategy: fsdp, offload: {optimizer: cpu, parameters: cpu}}"),
    "fsdp-1": ("accelerate", "{strategy: fsdp, fsdp: {version: 1, reshard_after_forward: false}}"),
    "native-fsdp-offloaded": ("native", "{strategy: fsdp, offload: {optimizer: cpu, parameters: cpu}}"),
    "zero3-offloaded": ("deepspeed", "{strategy: zero3, offload: {optimizer: cpu, parameters: cpu}}"),
    "accelerate-zero2-offloaded": ("accelerate", "{strategy: zero2, offload: {optimizer: cpu}}"),
    "zero3-nvme": ("deepspeed", "{strategy: zero3, offload: {optimizer: nvme, nvme_path: NVME}}"),
    "trainer-fsdp": ("trainer", "{strategy: fsdp, fsdp: {reshard_after_forward: false}}"),
    "trainer-zero3-offloaded": ("trainer", "{strategy: zero3, offload: {optimizer: cpu, parameters: cpu}}"),
    "zero3-quantized": ("deepspeed", "{strategy: zero3, zero: {quantized_weights: true, quantized_gradients: true}}"),
}


@pytest.mark.gpu
@pytest.mark.parametrize("case", ON_A_GPU)
def test_what_needs_a_gpu_learns_on_one(tmp_path: Path, case: str) -> None:
    backend, data = ON_A_GPU[case]
    (tmp_path / "nvme").mkdir()
    data = data.replace("NVME", str(tmp_path / "nvme"))
    sets = (f"parallelism.data={data}", "training.device=cuda", "training.num_gpus=1")
    folder = lowered(tmp_path / "out", backend, *sets, device="cuda")
    run_words("sh", folder / "launch.sh").check()
    check_measured(folder, world_size=1)


@pytest.mark.gpu
@pytest.mark.parametrize("engine", ["transformer-engine", "torchao"])
def test_eight_bit_floats_learn_on_a_gpu_that_has_them(tmp_path: Path, engine: str) -> None:
    pytest.importorskip({"transformer-engine": "transformer_engine", "torchao": "torchao"}[engine])
    sets = (f"training.fp8={engine}", "training.precision=bf16-mixed", "training.device=cuda", "training.num_gpus=1")
    folder = lowered(tmp_path / "out", "accelerate", *sets, device="cuda")
    run_words("sh", folder / "launch.sh").check()
    check_measured(folder, world_size=1)


def check_measured(folder: Path, *, world_size: int = 2) -> None:
    measurement = read_measurement(folder / "measurement.json")
    losses = measurement.losses
    assert measurement.world.world_size == world_size
    assert losses[0] is not None
    assert losses[-1] is not None
    assert losses[-1] < losses[0] - 0.5
    assert measurement.throughput.tokens_per_second is not None
    assert measurement.throughput.timed_tokens == measurement.steps.timed * 2 * 4 * 48 * world_size


def check_equals(folder: Path, references: References) -> None:
    """Hold a run of the tiny recipe, with its own optimizer, against float64."""
    losses = read_measurement(folder / "measurement.json").losses
    assert losses == pytest.approx(references["AdamW"]["losses"], rel=1e-4)


def check_losses(finished: Finished, pattern: str) -> None:
    finished.check(leaves_as_python_does=True)
    losses: Sequence[float] = [float(text) for text in re.findall(pattern, finished.output)]
    assert len(losses) >= 10, finished.output
    quarter = len(losses) // 4
    assert sum(losses[-quarter:]) < sum(losses[:quarter]) - 0.5 * quarter
