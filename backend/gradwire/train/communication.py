"""What DDP sends instead of the full gradient: torch's PowerSGD, or gradients cast to 16 bits for the wire."""

# No `from __future__ import annotations`: torch compares a hook's annotations with its own classes.
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, assert_never

import torch
import torch.distributed
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

from gradwire.documents.recipe_schema import Overlap, Recipe
from gradwire.errors import EnvironmentNotFit, UsageError


def ddp_options(overlap: Overlap) -> dict[str, Any]:
    """Return the keyword arguments of DistributedDataParallel that the recipe sets."""
    return {
        "bucket_cap_mb": overlap.bucket_cap_mb,
        "gradient_as_bucket_view": overlap.gradient_as_bucket_view,
        "static_graph": overlap.static_graph,
        "find_unused_parameters": overlap.find_unused_parameters,
    }


def install_compression(model: Any, recipe: Recipe, *, process_group: Any = None) -> None:
    """Register the recipe's compression on `model`, a DistributedDataParallel; does nothing for `none`.

    Raises UsageError where PowerSGD's start step is too early, EnvironmentNotFit where PowerSGD would run over
    several buckets on gloo.
    """
    compression = recipe.communication.compression
    match compression.method:
        case "none":
            return
        case "fp16":
            model.register_comm_hook(process_group, default_hooks.fp16_compress_hook)
        case "bf16":
            model.register_comm_hook(process_group, _bf16_hook)
        case "powersgd":
            state = _powersgd_state(recipe, process_group)
            model.register_comm_hook(state, _safe_powersgd_hook(state, process_group))
        case unknown:
            assert_never(unknown)


def micro_step_context(model: Any, recipe: Recipe, *, step: int, micro_step: int) -> AbstractContextManager[Any]:
    """Return the context for one micro-step of `model`, a DistributedDataParallel: only the last one reduces.

    With `static_graph` the very first micro-step reduces too: torch asserts where the graph's first backward does not.
    """
    last = micro_step == recipe.training.gradient_accumulation - 1
    if last or (first_micro_step_must_reduce(recipe) and step == micro_step == 0):
        return nullcontext()
    context: AbstractContextManager[Any] = model.no_sync()
    return context


def first_micro_step_must_reduce(recipe: Recipe) -> bool:
    """Return whether the run's very first micro-step has to reduce although it is not a step's last one."""
    return recipe.communication.overlap.static_graph and recipe.training.gradient_accumulation > 1


def _powersgd_state(recipe: Recipe, process_group: Any) -> Any:
    compression = recipe.communication.compression
    # torch counts reductions, the recipe optimizer steps: the two differ by the extra first reduction.
    extra_reductions = 1 if first_micro_step_must_reduce(recipe) else 0
    try:
        return powerSGD_hook.PowerSGDState(
            process_group,
            matrix_approximation_rank=compression.matrix_approximation_rank,
            start_powerSGD_iter=compression.start_step + extra_reductions,
            min_compression_rate=compression.min_compression_rate,
            use_error_feedback=compression.error_feedback,
            warm_start=compression.warm_start,
            random_seed=recipe.training.seed,
        )
    except ValueError as error:
        raise UsageError(f"communication.compression.start_step: {compression.start_step}: {error}") from None


def _safe_powersgd_hook(state: Any, process_group: Any) -> Callable[[Any, Any], Any]:
    """Return torch's hook, which refuses more than one bucket on gloo.

    The hook starts collectives from inside callbacks, so with several buckets ranks may issue them in different
    orders: gloo then hangs or mixes them up.
    """
    over_gloo = torch.distributed.get_backend(process_group) == "gloo"

    def hook(state: Any, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
        if over_gloo and state.iter >= state.start_powerSGD_iter and not (bucket.is_last() and bucket.index() == 0):
            mebibytes = bucket.buffer().numel() * bucket.buffer().element_size() / 2**20
            raise EnvironmentNotFit(
                "communication.compression.method: powersgd is safe over gloo only with a single bucket, and the "
                f"gradients fill several (bucket {bucket.index()} holds {mebibytes:.2f} MiB); "
                "set communication.overlap.bucket_cap_mb above the size of all gradients"
            )
        return powerSGD_hook.powerSGD_hook(state, bucket)

    return hook


def _bf16_hook(process_group: Any, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average the bucket in bf16; torch's own bf16 hook refuses gloo by its name although gloo reduces bf16."""
    group = process_group if process_group is not None else torch.distributed.group.WORLD
    gradient = bucket.buffer()
    narrow = gradient.to(torch.bfloat16).div_(group.size())

    def widen(future: Any) -> Any:
        return gradient.copy_(future.value()[0])

    return torch.distributed.all_reduce(narrow, group=group, async_op=True).get_future().then(widen)
