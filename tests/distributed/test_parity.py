"""The same recipe, seed and data gives the same losses on every backend and strategy, and they go down."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import pytest

from gradwire.documents.measurement_schema import Measurement
from gradwire.plan import Backend
from tests.distributed.real_runs import lowered, run_words, torchrun, train_with_launcher

pytestmark = pytest.mark.distributed

RELATIVE = 1e-4
OPTIMIZERS = ("Adam", "AdamW")

# A pipeline's two ranks share one batch, so it is twice as large: the same 16 samples per step as two DDP ranks take.
PIPELINE = ("training.batch_size_per_gpu=4", "parallelism.pipeline={stages: 2, chunks: 2}")
NATIVE = {
    "ddp": (),
    "overlap": ("communication.overlap={bucket_cap_mb: 0.05, gradient_as_bucket_view: true, static_graph: true}",),
    "checkpointing": ("training.gradient_checkpointing=true",),
    "fsdp": ("parallelism.data.strategy=fsdp",),
    "fsdp-offloaded": (
        "parallelism.data={strategy: fsdp, offload: {optimizer: cpu, parameters: cpu}, "
        "fsdp: {wrap: model, reshard_after_forward: false}}",
    ),
    "1f1b": PIPELINE,
    "gpipe": (*PIPELINE, "parallelism.pipeline.schedule=gpipe"),
    **{
        schedule: (
            "training.batch_size_per_gpu=4",
            f"parallelism.pipeline={{chunks: 4, schedule: {schedule}}}",
            "training.gradient_checkpointing=true",
        )
        for schedule in ("interleaved-1f1b", "interleaved-zero-bubble", "zbv")
    },
}
NATIVE_FOUR = {
    "ddp": ("training.batch_size_per_gpu=1",),
    "hsdp": ("training.batch_size_per_gpu=1", "parallelism.data={strategy: fsdp, shard_group_size: 2}"),
    "1f1b-ddp": ("parallelism.pipeline={stages: 2, chunks: 2}",),
    "gpipe-fsdp": (
        "parallelism.pipeline={stages: 2, chunks: 2, schedule: gpipe}",
        "parallelism.data.strategy=fsdp",
    ),
    "interleaved-1f1b-fsdp": (
        "parallelism.pipeline={stages: 4, chunks: 2, schedule: interleaved-1f1b}",
        "parallelism.data.strategy=fsdp",
    ),
    "gpipe-ddp": ("parallelism.pipeline={stages: 2, chunks: 2, schedule: gpipe}",),
    **{
        f"{schedule}-ddp": (f"parallelism.pipeline={{stages: 4, chunks: 2, schedule: {schedule}}}",)
        for schedule in ("interleaved-1f1b", "interleaved-zero-bubble", "zbv")
    },
}
# The Trainer takes no static graph with accumulation.
TRAINER_OVERLAP = ("communication.overlap={bucket_cap_mb: 0.05, gradient_as_bucket_view: true}",)
ZERO = {name: (f"parallelism.data.strategy={name}",) for name in ("ddp", "zero1", "zero2", "zero3")}
ZERO |= {
    "zero2-offloaded": ("parallelism.data={strategy: zero2, offload: {optimizer: cpu}}",),
    "zero3-offloaded": (
        "parallelism.data={strategy: zero3, offload: {optimizer: cpu, parameters: cpu}, "
        "zero: {secondary_partition_size: 2}}",
    ),
}
ZERO_FOUR = {
    "hpz": ("training.batch_size_per_gpu=1", "parallelism.data={strategy: zero3, zero: {secondary_partition_size: 2}}"),
}


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[float]]]:
    """Losses and gradient norms of each optimizer in float64 on one process."""
    parent = tmp_path_factory.mktemp("reference")
    folders = [lowered(parent / name, "native", f"training.optimizer={name}") for name in OPTIMIZERS]
    finished = run_words(sys.executable, Path(__file__).with_name("reference.py"), *folders)
    finished.check()
    return dict(zip(OPTIMIZERS, json.loads(finished.output.splitlines()[-1]), strict=True))


def test_reference_clips_in_every_step(references: dict[str, dict[str, list[float]]]) -> None:
    for reference in references.values():
        assert min(reference["gradient_norms"]) > 1.0


def test_optimizers_differ(references: dict[str, dict[str, list[float]]]) -> None:
    adam, adamw = (references[name]["losses"][-1] for name in OPTIMIZERS)
    assert abs(adam - adamw) / adam > 10 * RELATIVE


def test_native_strategies_equal_the_reference(tmp_path: Path, references: dict[str, dict[str, list[float]]]) -> None:
    check(tmp_path, "native", NATIVE, 2, references)


def test_native_on_four_processes_equals_the_reference(
    tmp_path: Path, references: dict[str, dict[str, list[float]]]
) -> None:
    check(tmp_path, "native", NATIVE_FOUR, 4, references)


def test_deepspeed_stages_equal_the_reference(tmp_path: Path, references: dict[str, dict[str, list[float]]]) -> None:
    check(tmp_path, "deepspeed", ZERO, 2, references)


@pytest.mark.soak
def test_second_copies_over_some_of_the_ranks_equal_the_reference(
    tmp_path: Path, references: dict[str, dict[str, list[float]]]
) -> None:
    check(tmp_path, "deepspeed", ZERO_FOUR, 4, references)


def test_accelerate_ddp_equals_the_reference(tmp_path: Path, references: dict[str, dict[str, list[float]]]) -> None:
    strategies = {name: NATIVE[name] for name in ("ddp", "overlap")}
    check(tmp_path, "accelerate", strategies, 2, references)


def test_accelerate_with_deepspeed_equals_the_reference(
    tmp_path: Path, references: dict[str, dict[str, list[float]]]
) -> None:
    strategies = {name: ZERO[name] for name in ("zero1", "zero2", "zero3", "zero3-offloaded")}
    check(tmp_path, "accelerate", strategies, 2, references)


def test_the_trainer_equals_the_reference(tmp_path: Path, references: dict[str, dict[str, list[float]]]) -> None:
    strategies = {"ddp": NATIVE["ddp"], "overlap": TRAINER_OVERLAP, "zero3-offloaded": ZERO["zero3-offloaded"]}
    check(tmp_path, "trainer", strategies, 2, references, optimizers=("AdamW",))


def test_same_seed_twice_gives_the_same_losses(tmp_path: Path) -> None:
    folder = lowered(tmp_path / "out", "native")
    runs = []
    for _ in range(2):
        torchrun(2, "-m", "gradwire.train", folder / "plan.json").check()
        runs.append(json.loads((folder / "measurement.json").read_text(encoding="utf-8"))["losses"])
    assert runs[0] == runs[1]


def check(
    tmp_path: Path,
    backend: Backend,
    strategies: dict[str, tuple[str, ...]],
    processes: int,
    references: dict[str, dict[str, list[float]]],
    optimizers: tuple[str, ...] = OPTIMIZERS,
) -> None:
    folders = [
        lowered(
            tmp_path / f"{strategy}-{optimizer}",
            backend,
            f"training.num_gpus={processes}",
            f"training.optimizer={optimizer}",
            *sets,
        )
        # In turn: test_parity_matrix has every strategy with every optimizer.
        for (strategy, sets), optimizer in zip(strategies.items(), itertools.cycle(optimizers))
    ]
    measured = train_with_launcher(folders, processes)
    for name, measurement in measured.items():
        reference = references[name.rpartition("-")[2]]
        assert measurement.losses == pytest.approx(reference["losses"], rel=RELATIVE), name
        assert measurement.gradient_norms == pytest.approx(reference["gradient_norms"], rel=1e-3), name
        check_learns(measurement)


def check_learns(measurement: Measurement) -> None:
    first, last = measurement.losses[0], measurement.losses[-1]
    assert first is not None
    assert last is not None
    assert last < first - 0.5
