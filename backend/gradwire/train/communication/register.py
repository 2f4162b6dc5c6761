"""Chooses and registers the communication method that a recipe asks for."""

from __future__ import annotations

from typing import assert_never

import msgspec
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from gradwire.documents.recipe_schema import Compression
from gradwire.errors import UsageError
from gradwire.train.communication.alternating import AlternatingPowerSGD
from gradwire.train.communication.cast import Cast
from gradwire.train.communication.full import FullGradients
from gradwire.train.communication.hook import HookedCommunication
from gradwire.train.communication.int8 import Int8
from gradwire.train.communication.interface import GradientCommunication, Method
from gradwire.train.communication.local_sgd import LocalSgd, LocalSgdOptions
from gradwire.train.communication.low_rank import LowRankOptions
from gradwire.train.communication.powersgd import PowerSGD
from gradwire.train.communication.topk import TopK
from gradwire.train.communication.torch_hooks import register_fp16_torch, register_powersgd_torch
from gradwire.train.number_format import DTYPES, NumberFormat


def register(
    ddp_model: DistributedDataParallel,
    compression: Compression,
    *,
    process_group: dist.ProcessGroup,
    extra_synchronisations: int = 0,
    dtype: NumberFormat | None = None,
) -> GradientCommunication:
    """Make `ddp_model` average its gradients by `compression.method`, and return what counts and saves it.

    Every rank of `process_group`, the one DDP was given, calls this once per model. All micro-steps but the last run
    under `no_sync`; `extra_synchronisations` is 1 where the first one of this process does not (static_graph with
    accumulation). `dtype` is what full gradients, those of method none, travel as; None: as they are. Raises UsageError
    where a method is known not to work here; the text has the reason.
    """
    if compression.method != "none" or dtype is not None:
        _check_real(ddp_model, compression.method if dtype is None else f"none with dtype {dtype}")
    match compression.method:
        case "none" if dtype is not None and _differs(ddp_model, DTYPES[dtype]):
            return HookedCommunication(
                ddp_model,
                Cast(DTYPES[dtype]),
                name=dtype,
                options={"dtype": dtype},
                process_group=process_group,
                extra_synchronisations=extra_synchronisations,
            )
        case "none":
            return FullGradients(ddp_model, world_size=dist.get_world_size(process_group))
        case "fp16-torch":
            return register_fp16_torch(
                ddp_model,
                process_group=process_group,
                extra_synchronisations=extra_synchronisations,
            )
        case "powersgd-torch":
            return register_powersgd_torch(
                ddp_model,
                compression,
                process_group=process_group,
                extra_synchronisations=extra_synchronisations,
            )
        case _:
            if compression.method == "local-sgd":
                # Buffers are shared when parameters are, not in every forward pass.
                ddp_model.broadcast_buffers = False
                method: Method = LocalSgd(_local_sgd_options(compression), _trainable(ddp_model))
            else:
                method = method_of(compression, unused=bool(ddp_model.find_unused_parameters))
            return HookedCommunication(
                ddp_model,
                method,
                name=compression.method,
                options=msgspec.to_builtins(compression),
                process_group=process_group,
                extra_synchronisations=extra_synchronisations,
            )


def _check_real(ddp_model: DistributedDataParallel, method: str) -> None:
    """Raise UsageError for complex parameters: rounding would drop their imaginary part without a word."""
    names = [name for name, parameter in _trainable(ddp_model) if parameter.is_complex()]
    if names:
        raise UsageError(
            f"communication.compression.method {method}: {names[0]} is a complex parameter (of {len(names)}), and only "
            "real gradients are compressed; use method none without a dtype"
        )


def _differs(ddp_model: DistributedDataParallel, dtype: torch.dtype) -> bool:
    return any(parameter.requires_grad and parameter.dtype != dtype for parameter in ddp_model.module.parameters())


def method_of(compression: Compression, *, unused: bool) -> Method:
    """Return the algorithm behind `compression`; `unused`: some ranks may not use a parameter in a step.

    torch's own PowerSGD is stood for by Gradwire's. Raises UsageError for options that contradict each other, and
    ValueError for a method that changes no gradient.
    """
    match compression.method:
        case "fp16":
            return Cast(torch.float16)
        case "bf16":
            return Cast(torch.bfloat16)
        case "powersgd" | "powersgd-torch":
            return PowerSGD(_low_rank_options(compression, unused=unused))
        case "powersgd-alternating":
            if not compression.warm_start:
                raise UsageError(
                    "communication.compression.warm_start false with powersgd-alternating: each step continues from "
                    "the factor of the step before; use powersgd, or warm_start true"
                )
            return AlternatingPowerSGD(_low_rank_options(compression, unused=unused))
        case "int8":
            return Int8(
                block_size=compression.int8_block_size, error_feedback=compression.error_feedback, unused=unused
            )
        case "topk":
            return TopK(fraction=compression.topk_fraction, error_feedback=compression.error_feedback, unused=unused)
        case "none" | "fp16-torch" | "local-sgd":
            raise ValueError(f"{compression.method} compresses no gradient by Gradwire's code")
        case unknown:
            assert_never(unknown)


def _trainable(ddp_model: DistributedDataParallel) -> list[tuple[str, torch.Tensor]]:
    return [(name, value) for name, value in ddp_model.module.named_parameters() if value.requires_grad]


def _local_sgd_options(compression: Compression) -> LocalSgdOptions:
    return LocalSgdOptions(
        start_step=compression.start_step,
        local_steps=compression.local_steps,
        outer_learning_rate=compression.outer_learning_rate,
        outer_momentum=compression.outer_momentum,
        int8_block_size=compression.int8_block_size if compression.difference_dtype == "int8" else None,
        error_feedback=compression.error_feedback,
    )


def _low_rank_options(compression: Compression, *, unused: bool) -> LowRankOptions:
    return LowRankOptions(
        matrix_approximation_rank=compression.matrix_approximation_rank,
        min_compression_rate=compression.min_compression_rate,
        error_feedback=compression.error_feedback,
        warm_start=compression.warm_start,
        start_step=compression.start_step,
        wire_dtype=None if compression.wire_dtype is None else DTYPES[compression.wire_dtype],
        unused=unused,
    )
