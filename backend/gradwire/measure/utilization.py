"""Model FLOP/s and hardware FLOP/s against the device's peak, or the reason why there is no such share."""

from __future__ import annotations

from gradwire.documents.measurement_schema import Utilization
from gradwire.documents.plan_schema import Plan
from gradwire.measure.peaks import device_peak, peak_flops_per_second


def utilization_of(plan: Plan, device_name: str, tokens_per_second_per_rank: float | None) -> Utilization:
    """Return the utilization of one device that trains `tokens_per_second_per_rank`; None: no step was timed.

    mfu = flops_per_token x tokens per second and rank / peak, with the plan's flops_per_token (its docstring states
    the convention: 6 per parameter, attention whole, recomputation not counted). hfu counts the activations that
    gradient checkpointing computes again; see `hardware_flops_per_token`. Both are None, with the reason, where a
    part is missing, and where the share comes out above 1: then an input is wrong, and the number would be too.
    """
    precision = plan.recipe.training.precision
    peak = peak_flops_per_second(device_name, precision) if plan.world.device == "cuda" else None
    size = plan.model_size
    if size is None or tokens_per_second_per_rank is None:
        why = (
            "no step was timed"
            if tokens_per_second_per_rank is None
            else "the recipe has no model, so its FLOPs per token are not known"
        )
        return _without_share(None, peak, why)
    achieved = size.flops_per_token * tokens_per_second_per_rank
    if peak is None:
        return _without_share(achieved, peak, _why_no_peak(plan, device_name))
    mfu = achieved / peak
    hfu = hardware_flops_per_token(plan) * tokens_per_second_per_rank / peak
    if hfu > 1:
        return _without_share(
            achieved,
            peak,
            f"the inputs are wrong: {max(mfu, hfu):.0%} of the device's peak cannot be. Check that the device was "
            "synchronised before the clock was read and that every token was trained; attention is counted whole, "
            "so a causal kernel over very long sequences does up to half less than counted",
        )
    return Utilization(
        model_flops_per_second_per_rank=achieved, peak_flops_per_second=peak, mfu=mfu, hfu=hfu, reason=None
    )


def hardware_flops_per_token(plan: Plan) -> float:
    """Return the FLOPs per token that the device really does; raises ValueError for a plan without a model.

    A backward pass costs two forward passes, so the model's FLOPs are three forward passes, and running every
    block's forward pass once more adds a third of the blocks' share: 8 instead of 6 per parameter, 16 instead of 12
    for attention. The output projection lies outside the blocks and is not recomputed. What a fused attention
    kernel recomputes inside its own backward pass is not counted.
    """
    size, model = plan.model_size, plan.recipe.model
    if size is None or model is None:
        raise ValueError("the plan has no model")
    if not plan.recipe.training.gradient_checkpointing:
        return float(size.flops_per_token)
    blocks = size.flops_per_token - 6 * model.vocab_size * model.hidden_size
    return size.flops_per_token + blocks / 3


def _why_no_peak(plan: Plan, device_name: str) -> str:
    if plan.world.device == "cpu":
        return "a cpu has no peak to divide by: it depends on the cores, their clock and their vector units"
    if device_peak(device_name) is None:
        return f"the peak FLOP/s of {device_name!r} is not known to gradwire"
    return f"{device_name!r} has no matrix unit for {plan.recipe.training.precision}"


def _without_share(achieved: float | None, peak: float | None, reason: str) -> Utilization:
    return Utilization(
        model_flops_per_second_per_rank=achieved, peak_flops_per_second=peak, mfu=None, hfu=None, reason=reason
    )
