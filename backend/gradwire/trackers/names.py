"""Puts a finished step under the names that dashboards know."""

from __future__ import annotations

from gradwire.documents.step_schema import Step


def step_figures(step: Step, *, world_size: int, mfu: float | None = None) -> dict[str, float]:
    """Return the figures of one step; what is not known is left out.

    `throughput/...` as in Composer and Lightning (`device/`: a rank's share), `train/loss` and `train/grad_norm` as in
    Transformers, `time/step_seconds`.
    """
    found: dict[str, float | None] = {
        "train/loss": step.loss,
        "train/grad_norm": step.gradient_norm,
        "time/step_seconds": step.seconds,
        "throughput/device/mfu": mfu,
    }
    if step.seconds > 0:
        for name, count in (("samples", step.samples), ("tokens", step.tokens)):
            rate = count / step.seconds if count else None
            found[f"throughput/{name}_per_sec"] = rate
            found[f"throughput/device/{name}_per_sec"] = None if rate is None else rate / world_size
    return {name: float(value) for name, value in found.items() if value is not None}
