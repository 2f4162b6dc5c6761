"""Wraps a model in DistributedDataParallel and registers one configuration's way to average gradients on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, assert_never

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from benchmarks.netlab.configurations import FIRST_COMPRESSED_STEP, Configuration
from gradwire.documents.recipe_schema import Compression, Recipe
from gradwire.train.buckets import settle_buckets
from gradwire.train.communication import register


def nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Installed:
    """A model that averages as its configuration says; call `step_ended` after each optimizer step.

    `synchronise` makes the ranks equal before an evaluation; `close` ends it.
    """

    model: nn.Module
    step_ended: Callable[[], None] = nothing
    synchronise: Callable[[], None] = nothing
    close: Callable[[], None] = nothing


def with_chosen_bucket(model: nn.Module, configuration: Configuration, passes: Callable[[], Tensor]) -> Configuration:
    """Return `configuration` with the bucket size that the package chooses for `model`, where it leaves that open.

    `passes` runs `model`, which is not wrapped yet, forward. All ranks call this together.
    """
    if not configuration.auto_bucket:
        return configuration
    communication = {"compression": configuration.compression, "overlap": {"bucket_cap_mb": "auto"}}
    buckets = settle_buckets(
        model,
        msgspec.convert({"communication": communication}, Recipe),
        process_group=dist.group.WORLD,
        device=torch.device("cpu"),
        passes=passes,
    )
    return replace(configuration, bucket_cap_mb=buckets.bucket_cap_mb)


def wrap(model: nn.Module, configuration: Configuration, *, start_step: int = FIRST_COMPRESSED_STEP) -> Installed:
    """Return `model` made to average gradients over all ranks as `configuration` says.

    All ranks must hold equal parameters already: they are not sent. Low-rank methods compress from `start_step`,
    torch's own from its third step at the earliest.
    """
    if configuration.kind == "alone":
        return Installed(model=model)
    parallel = DistributedDataParallel(
        model,
        init_sync=False,
        bucket_cap_mb=configuration.bucket_cap_mb,
        gradient_as_bucket_view=True,
    )
    match configuration.kind:
        case "ddp":
            return Installed(model=parallel)
        case "torch-fp16":
            parallel.register_comm_hook(None, default_hooks.fp16_compress_hook)
            return Installed(model=parallel)
        case "torch-powersgd":
            state = powerSGD_hook.PowerSGDState(
                None,
                matrix_approximation_rank=configuration.compression["matrix_approximation_rank"],
                start_powerSGD_iter=max(start_step, FIRST_COMPRESSED_STEP),
            )
            parallel.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
            return Installed(model=parallel)
        case "gradwire":
            return _register_own(parallel, configuration, start_step)
        case unknown:
            assert_never(unknown)


def _register_own(parallel: Any, configuration: Configuration, start_step: int) -> Installed:
    compression = msgspec.convert({"start_step": start_step, **configuration.compression}, Compression)
    communication = register(parallel, compression, process_group=dist.group.WORLD)
    return Installed(
        model=parallel,
        step_ended=communication.step_ended,
        synchronise=communication.synchronise,
        close=communication.close,
    )
