"""Wraps a model in DistributedDataParallel and registers one configuration's way to average gradients on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_never

import msgspec
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from benchmarks.netlab.configurations import FIRST_COMPRESSED_STEP, Configuration
from gradwire.documents.recipe_schema import Compression


def nothing_to_close() -> None:
    """Close nothing."""


def wrap(
    model: nn.Module, configuration: Configuration, *, start_step: int = FIRST_COMPRESSED_STEP
) -> tuple[nn.Module, Callable[[], None]]:
    """Return `model` made to average gradients over all ranks as `configuration` says, and what ends it.

    All ranks must hold equal parameters already: they are not sent. Low-rank methods compress from `start_step`.
    """
    if configuration.kind == "alone":
        return model, nothing_to_close
    parallel = DistributedDataParallel(
        model,
        init_sync=False,
        bucket_cap_mb=configuration.bucket_cap_mb,
        gradient_as_bucket_view=True,
    )
    match configuration.kind:
        case "ddp":
            return parallel, nothing_to_close
        case "torch-fp16":
            parallel.register_comm_hook(None, default_hooks.fp16_compress_hook)
            return parallel, nothing_to_close
        case "torch-powersgd":
            state = powerSGD_hook.PowerSGDState(
                None,
                matrix_approximation_rank=configuration.compression["matrix_approximation_rank"],
                start_powerSGD_iter=start_step,
            )
            parallel.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
            return parallel, nothing_to_close
        case "gradwire":
            return parallel, _register_own(parallel, configuration, start_step)
        case unknown:
            assert_never(unknown)


def _register_own(parallel: Any, configuration: Configuration, start_step: int) -> Callable[[], None]:
    from gradwire.train.communication import register

    compression = msgspec.convert({"start_step": start_step, **configuration.compression}, Compression)
    communication = register(parallel, compression, process_group=dist.group.WORLD)
    return communication.close
