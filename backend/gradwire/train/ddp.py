"""Sets DistributedDataParallel up as the recipe says: its options, its communication, and which micro-steps reduce."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from gradwire.documents.measurement_schema import Buckets
from gradwire.documents.recipe_schema import Overlap, Recipe
from gradwire.recipe.torch_buckets import TORCH_BUCKET_MIB
from gradwire.train.communication import GradientCommunication, register


def ddp_options(overlap: Overlap, buckets: Buckets | None = None) -> dict[str, Any]:
    """Return the keyword arguments of DistributedDataParallel that the recipe sets.

    `buckets` are those that `settle_buckets` chose; raises ValueError where the recipe says auto and there are none.
    """
    cap: float | None
    if buckets is not None and buckets.source == "auto":
        cap = buckets.bucket_cap_mb
    elif overlap.bucket_cap_mb == "auto":
        raise ValueError("bucket_cap_mb auto must be settled before the model is wrapped")
    else:
        cap = overlap.bucket_cap_mb
    options: dict[str, Any] = {
        "bucket_cap_mb": cap,
        "gradient_as_bucket_view": overlap.gradient_as_bucket_view,
        "static_graph": overlap.static_graph,
        "find_unused_parameters": overlap.find_unused_parameters,
    }
    if overlap.first_bucket_mb is not None:
        # The last of the list holds for all buckets that follow.
        options["bucket_cap_mb_list"] = [overlap.first_bucket_mb, TORCH_BUCKET_MIB if cap is None else cap]
    return options


def register_communication(ddp_model: Any, recipe: Recipe) -> GradientCommunication:
    """Make `ddp_model`, a DistributedDataParallel that has not trained yet, average gradients as the recipe says.

    Gradients must be reduced once per optimizer step, beyond what `first_micro_step_must_reduce` says. All ranks
    call it together. Raises UsageError where the method is known not to work here.
    """
    return register(
        ddp_model,
        recipe.communication.compression,
        process_group=ddp_model.process_group,
        dtype=recipe.communication.dtype,
        extra_synchronisations=1 if first_micro_step_must_reduce(recipe) else 0,
    )


@contextmanager
def explained(communication: GradientCommunication | None) -> Iterator[None]:
    """Wrap a backward pass, to time it: where gradient communication failed in it, raise that, which names the rank."""
    with failure_named(communication):
        yield
        if communication is not None:
            communication.backward_ended()


@contextmanager
def failure_named(communication: GradientCommunication | None) -> Iterator[None]:
    """Raise what failed in gradient communication, which names the rank, in the place of torch's error."""
    try:
        yield
    except RuntimeError as error:
        if communication is None or communication.failure is None:
            raise
        raise communication.failure from error


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
