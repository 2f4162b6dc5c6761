# Generated from the JSON Schemas by `make documents`; never edited.

from __future__ import annotations

from msgspec import Struct


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
