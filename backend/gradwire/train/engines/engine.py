"""What every engine offers the step loop, and the table of engines."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from gradwire.documents.measurement_schema import Buckets
from gradwire.plan import Backend
from gradwire.train.attention import check_flash_attention
from gradwire.train.communication import GradientCommunication
from gradwire.train.model import compute_dtype
from gradwire.train.setting import Setting
from gradwire.train.stopwatch import Lap
from gradwire.train.training_state import State

_MODULES: dict[Backend, str] = {
    "native": "gradwire.train.engines.native",
    "accelerate": "gradwire.train.engines.accelerate",
    "deepspeed": "gradwire.train.engines.deepspeed",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroBatch:
    """`tokens` and `labels` (each token's next one), both (batch_size_per_gpu, sequence_length) on the device.

    `label_count` of the labels count; the mean loss over those is multiplied by `weight` before micro-steps and ranks
    are averaged. `checksum` is the CRC-32 of the tokens.
    """

    tokens: Any
    labels: Any
    label_count: int
    weight: float
    checksum: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """What one optimizer step gave.

    `loss_share`: this rank's part of the step's loss, a scalar tensor; the sum over all ranks is the mean over
    micro-steps and data-parallel ranks of the weighted mean token loss, in nats. `gradient_norm`: global 2-norm of the
    averaged gradient before clipping, a scalar tensor or a float, None where it is not computed. `learning_rate`: what
    the optimizer held when it took the step. `sequences`: those that the step's gradient is made of over all ranks, as
    the backend counts them.
    """

    loss_share: Any
    gradient_norm: Any
    learning_rate: float
    sequences: int


class Engine(Protocol):
    """Trains one model on one rank."""

    @property
    def data_parallel_rank(self) -> int:
        """Which of the data-parallel ranks this one is; ranks of one pipeline share it."""

    @property
    def counts_samples(self) -> bool:
        """Whether this rank's samples count; one rank per pipeline counts them."""

    @property
    def notes(self) -> Sequence[str]:
        """What a reader of the measurement should know."""

    @property
    def communication(self) -> GradientCommunication | None:
        """What averages this rank's gradients under DDP; None where there is no DDP."""

    @property
    def buckets(self) -> Buckets | None:
        """In which sizes DDP averages them; None where there is no DDP around a whole model."""

    @property
    def state(self) -> State | None:
        """What a checkpoint saves and restores; None where this engine saves none."""

    @property
    def lone_step(self) -> Callable[[], AbstractContextManager[Any]] | None:
        """Makes a context in which a step sends no gradient; None where there is no such thing."""

    def step(self, micro_batches: Sequence[MicroBatch]) -> StepResult:
        """Take one optimizer step over the micro-batches of this data-parallel rank."""


def build_engine(setting: Setting, device: Any, lap: Lap) -> Engine:
    """Return the engine of the plan's backend, its model built, wrapped and ready; it calls `lap` within each step."""
    plan, training = setting.plan, setting.plan.recipe.training
    if training.flash_attention:
        check_flash_attention(setting.model, device=device, dtype=compute_dtype(training))
    name = "gradwire.train.engines.pipeline" if plan.pipeline else _MODULES[plan.backend]
    engine: Engine = importlib.import_module(name).build(setting, device, lap)
    return engine
