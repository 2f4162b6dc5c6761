"""powersgd-torch, fp16-torch: torch's own hooks as they are, as a baseline, refused where they are known to hang."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from gradwire.documents.recipe_schema import Compression
from gradwire.errors import RunFailed, UsageError
from gradwire.measure.traffic import StepTraffic
from gradwire.train.communication.reduction_clock import ReductionClock

FORMAT_VERSION = 1

_HANGS = (
    "torch's PowerSGD hook starts collectives from callbacks, so on gloo the ranks can start them in different orders "
    "and wait for each other for ever"
)


class TorchHook:
    """A hook of torch's on one DDP model, counted from outside.

    `hook` is called with `hook_state` and the bucket; `bytes_of` returns what it will send of it.
    """

    def __init__(
        self,
        ddp_model: DistributedDataParallel,
        *,
        name: str,
        hook: Callable[[Any, dist.GradBucket], torch.futures.Future[Tensor]],
        hook_state: Any,
        world_size: int,
        bytes_of: Callable[[dist.GradBucket], int],
        several_buckets_hang: bool,
        extra_synchronisations: int,
    ) -> None:
        self.method = name
        self.failure: RunFailed | None = None
        self.hook_state = hook_state
        self._hook = hook
        self._world_size = world_size
        self._bytes_of = bytes_of
        self._several_buckets_hang = several_buckets_hang
        self._synchronisations = 0
        self._extra_synchronisations = extra_synchronisations
        self._handed_over = False
        self._gradient_bytes = self._payload_bytes = 0
        self._clock = ReductionClock(ddp_model)
        ddp_model.register_comm_hook(self, lambda communication, bucket: communication.average(bucket))

    @property
    def last_step(self) -> StepTraffic | None:
        if not self._handed_over:
            return None
        return StepTraffic(
            gradient_bytes=self._gradient_bytes,
            payload_bytes=self._payload_bytes,
            wire_bytes=self._payload_bytes * 2 * (self._world_size - 1) // self._world_size,
            communication_seconds=self._clock.reduction_seconds,
            exposed_seconds=self._clock.exposed_seconds,
        )

    def backward_ended(self) -> None:
        self._clock.backward_ended()

    def step_ended(self) -> None:
        pass

    def synchronise(self) -> None:
        pass

    def average(self, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        """Return what torch's hook returns; raises UsageError for one of several buckets where it would hang."""
        if self._several_buckets_hang and not (bucket.index() == 0 and bucket.is_last()):
            raise UsageError(f"communication.compression.method {self.method}: more than one bucket on gloo: {_HANGS}")
        if bucket.index() == 0:
            self._gradient_bytes = self._payload_bytes = 0
        self._gradient_bytes += bucket.buffer().numel() * bucket.buffer().element_size()
        self._payload_bytes += self._bytes_of(bucket)
        if bucket.is_last():
            self._handed_over = True
            if self._extra_synchronisations:
                self._extra_synchronisations -= 1
            else:
                self._synchronisations += 1
        return self._hook(self.hook_state, bucket)

    def state_dict(self) -> dict[str, Any]:
        return {"format_version": FORMAT_VERSION, "method": self.method, "synchronisations": self._synchronisations}

    def load_state_dict(self, state: Mapping[str, Any]) -> tuple[str, ...]:
        if state["method"] != self.method:
            return (f"communication state of method {state['method']} is not used: the recipe asks for {self.method}",)
        self._synchronisations = int(state["synchronisations"])
        if not isinstance(self.hook_state, PowerSGDState):
            return ()
        # torch keys its state by bucket, and DDP's buckets change after the first step.
        self.hook_state.iter = min(self._synchronisations, max(self.hook_state.start_powerSGD_iter - 2, 0))
        return ("torch's PowerSGD state cannot be restored: errors and factors start anew, after up to two full steps",)

    def close(self) -> None:
        self._clock.close()


def register_fp16_torch(
    ddp_model: DistributedDataParallel,
    *,
    process_group: dist.ProcessGroup,
    extra_synchronisations: int,
) -> TorchHook:
    """Register torch's `fp16_compress_hook`."""
    return TorchHook(
        ddp_model,
        name="fp16-torch",
        hook=fp16_compress_hook,
        hook_state=process_group,
        world_size=dist.get_world_size(process_group),
        bytes_of=lambda bucket: 2 * bucket.buffer().numel(),
        several_buckets_hang=False,
        extra_synchronisations=extra_synchronisations,
    )


def register_powersgd_torch(
    ddp_model: DistributedDataParallel,
    compression: Compression,
    *,
    process_group: dist.ProcessGroup,
    extra_synchronisations: int,
) -> TorchHook:
    """Register torch's `powerSGD_hook`; raises UsageError where it is known to hang."""
    gloo = dist.get_backend(process_group) == "gloo"
    if gloo:
        _check_gloo(ddp_model)
    start = compression.start_step + extra_synchronisations
    if start < 2 and (compression.warm_start or compression.error_feedback):
        raise UsageError(
            f"communication.compression.start_step {compression.start_step} with powersgd-torch: torch needs 2 or more "
            "full steps before warm_start or error_feedback"
        )
    state = PowerSGDState(
        process_group=process_group,
        matrix_approximation_rank=compression.matrix_approximation_rank,
        start_powerSGD_iter=start,
        min_compression_rate=compression.min_compression_rate,
        use_error_feedback=compression.error_feedback,
        warm_start=compression.warm_start,
    )
    return TorchHook(
        ddp_model,
        name="powersgd-torch",
        hook=powerSGD_hook,
        hook_state=state,
        world_size=dist.get_world_size(process_group),
        bytes_of=partial(_powersgd_bytes, state),
        several_buckets_hang=gloo,
        extra_synchronisations=extra_synchronisations,
    )


def _check_gloo(ddp_model: DistributedDataParallel) -> None:
    if ddp_model.find_unused_parameters:
        raise UsageError(
            f"communication.compression.method powersgd-torch with find_unused_parameters on gloo: {_HANGS}; "
            "use method powersgd"
        )
    buckets = _bucket_count(ddp_model)
    if buckets > 1:
        raise UsageError(
            f"communication.compression.method powersgd-torch with {buckets} buckets on gloo: {_HANGS}; use method "
            "powersgd, or a bucket_cap_mb that holds all gradients"
        )


def _powersgd_bytes(state: PowerSGDState, bucket: dist.GradBucket) -> int:
    size: int = bucket.buffer().element_size()
    if state.iter < state.start_powerSGD_iter:
        return int(bucket.buffer().numel()) * size
    rank, rate = state.matrix_approximation_rank, state.min_compression_rate
    elements = 0
    for gradient in bucket.gradients():
        rows = gradient.shape[0] if gradient.dim() > 1 else 1
        columns = gradient.numel() // rows
        thin = (rows + columns) * rank
        fits = gradient.dim() > 1 and thin * rate < gradient.numel()
        elements += (rows + columns) * min(rows, columns, rank) if fits else gradient.numel()
    return elements * size


def _bucket_count(ddp_model: DistributedDataParallel) -> int:
    """Return the number of buckets DDP will form once it has seen one backward pass, in reverse order of definition."""
    parameters = [parameter for parameter in ddp_model.module.parameters() if parameter.requires_grad]
    limits = [ddp_model._bucket_config.first_bucket_bytes_cap, ddp_model._bucket_config.bucket_bytes_cap]
    buckets, _ = dist._compute_bucket_assignment_by_size(parameters[::-1], limits)
    return len(buckets)
