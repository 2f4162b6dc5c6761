"""The same recipe, seed and data gives the same losses on every backend and strategy, and they go down."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from gradwire.documents.measurement_schema import Measurement
from gradwire.measure.measurement import read_measurement
from gradwire.plan import Backend
from tests.distributed.real_runs import lowered, torchrun, train_in_one_group

pytestmark = pytest.mark.distributed

References = Mapping[str, Mapping[str, Sequence[float]]]
Strategies = Mapping[str, tuple[str, ...]]

RELATIVE = 1e-4
OPTIMIZERS = ("Adam", "AdamW")

# A pipeline's two ranks share one batch, so it is twice as large: the same 16 samples per step as two DDP ranks take.
PIPELINE = ("training.batch_size_per_gpu=4", "parallelism.pipeline={stages: 2, chunks: 2}")
NATIVE: Strategies = {
    "ddp": (),
    "overlap": ("communication.overlap={bucket_cap_mb: 0.05, gradient_as_bucket_view: true, static_graph: true}",),
    "checkpointing": ("training.gradient_checkpointing=true",),
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
NATIVE_FOUR: Strategies = {
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
# What is not offloaded is in test_parity_matrix, on every backend.
OFFLOADED: Strategies = {
    "zero2-offloaded": ("parallelism.data={strategy: zero2, offload: {optimizer: cpu}}",),
    "zero3-offloaded": (
        "parallelism.data={strategy: zero3, offload: {optimizer: cpu, parameters: cpu}, "
        "zero: {secondary_partition_size: 2}}",
    ),
}
ZERO_FOUR: Strategies = {
    "hpz": ("training.batch_size_per_gpu=1", "parallelism.data={strategy: zero3, zero: {secondary_partition_size: 2}}"),
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One recipe: the tiny one with `optimizer` and `sets`, lowered for `backend`."""

    backend: Backend
    optimizer: str
    sets: tuple[str, ...]


def cases(backend: Backend, strategies: Strategies, optimizers: Sequence[str] = OPTIMIZERS) -> dict[str, Case]:
    """Return a case for each strategy, the optimizers in turn: test_parity_matrix has every one with every other."""
    return {
        f"{backend} {name}": Case(backend=backend, optimizer=optimizer, sets=sets)
        for (name, sets), optimizer in zip(strategies.items(), itertools.cycle(optimizers))
    }


TWO = {
    **cases("native", NATIVE),
    **cases("deepspeed", OFFLOADED),
    **cases("accelerate", {"overlap": NATIVE["overlap"], "zero3-offloaded": OFFLOADED["zero3-offloaded"]}),
    **cases("trainer", {"overlap": TRAINER_OVERLAP, "zero3-offloaded": OFFLOADED["zero3-offloaded"]}, ("AdamW",)),
}
FOUR = cases("native", NATIVE_FOUR)
FOUR_FOR_LONG = cases("deepspeed", ZERO_FOUR)


def train_all(parent: Path, chosen: Mapping[str, Case], processes: int) -> dict[str, Measurement]:
    """Train every case in one start."""
    folders = [
        lowered(
            parent / name.replace(" ", "-"),
            case.backend,
            f"training.num_gpus={processes}",
            f"training.optimizer={case.optimizer}",
            *case.sets,
        )
        for name, case in chosen.items()
    ]
    return dict(zip(chosen, train_in_one_group(folders, processes), strict=True))


def test_reference_clips_in_every_step(references: References) -> None:
    for reference in references.values():
        assert min(reference["gradient_norms"]) > 1.0


def test_optimizers_differ(references: References) -> None:
    adam, adamw = (references[name]["losses"][-1] for name in OPTIMIZERS)
    assert abs(adam - adamw) / adam > 10 * RELATIVE


@pytest.fixture(scope="module")
def on_two(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Measurement]:
    return train_all(tmp_path_factory.mktemp("two"), TWO, 2)


@pytest.fixture(scope="module")
def on_four(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Measurement]:
    return train_all(tmp_path_factory.mktemp("four"), FOUR, 4)


@pytest.mark.parametrize("name", TWO)
def test_two_processes_equal_the_reference(name: str, on_two: dict[str, Measurement], references: References) -> None:
    check(on_two[name], references[TWO[name].optimizer])


@pytest.mark.parametrize("name", FOUR)
def test_four_processes_equal_the_reference(name: str, on_four: dict[str, Measurement], references: References) -> None:
    check(on_four[name], references[FOUR[name].optimizer])


@pytest.mark.soak
def test_second_copies_over_some_of_the_ranks_equal_the_reference(tmp_path: Path, references: References) -> None:
    for name, measurement in train_all(tmp_path, FOUR_FOR_LONG, 4).items():
        check(measurement, references[FOUR_FOR_LONG[name].optimizer])


def test_same_seed_gives_the_same_losses_in_another_start(tmp_path: Path, on_two: dict[str, Measurement]) -> None:
    folder = lowered(tmp_path / "out", "native", f"training.optimizer={TWO['native ddp'].optimizer}")
    torchrun(2, "-m", "gradwire.train", folder / "plan.json").check()
    assert read_measurement(folder / "measurement.json").losses == on_two["native ddp"].losses


def check(measurement: Measurement, reference: Mapping[str, Sequence[float]]) -> None:
    assert measurement.losses == pytest.approx(reference["losses"], rel=RELATIVE)
    assert measurement.gradient_norms == pytest.approx(reference["gradient_norms"], rel=1e-3)
    first, last = measurement.losses[0], measurement.losses[-1]
    assert first is not None
    assert last is not None
    assert last < first - 0.5
