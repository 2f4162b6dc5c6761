# Generated from the JSON Schemas by `make documents`; never edited.

from __future__ import annotations

from msgspec import Struct


class StepLaps(Struct, frozen=True, kw_only=True):
    """Seconds of one step on rank 0, by what they were spent on; they sum to the step's."""

    input_wait: float
    """Until the step's micro-batches are on the device."""
    passes: float
    """Forward and backward passes, with the collectives in them and the wait for a straggler."""
    pipeline_bubble: float
    """While the stage ran no chunk."""
    optimizer: float
    """Clipping the gradients and updating the weights."""
    other: float
    """The rest of the step."""


class Step(Struct, frozen=True, kw_only=True):
    """One finished optimizer step: a line of steps.jsonl, written when the step ends."""

    step: int
    """Number of the step; the first one is 1."""
    loss: float | None
    """Mean training loss in nats per token, over all ranks and micro-steps; null where it is not finite."""
    gradient_norm: float | None
    """Global 2-norm of the averaged gradient before clipping; null where the backend does not report it."""
    seconds: float
    """Seconds of the step on rank 0."""
    samples: int
    """Sequences trained in the step, over all ranks."""
    tokens: int
    """Tokens trained in the step, over all ranks."""
    learning_rate: float | None = None
    """Learning rate that the step was taken with; null where it is not known."""
    laps: StepLaps | None = None
    """What rank 0 spent the step's seconds on; null where that was not recorded."""
