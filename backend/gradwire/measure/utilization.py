"""Model FLOP/s and hardware FLOP/s against the device's peak, or the reason why there is no such share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gradwire.documents.measurement_schema import Utilization
from gradwire.documents.plan_schema import Plan
from gradwire.measure.matmul_peak import RunPeak, measured_rate, rate_in_words
from gradwire.measure.mfu import impossible_share
from gradwire.measure.peaks import device_peak, peak_flops_per_second
from gradwire.recipe.model_flops import flops_formula


@dataclass(frozen=True, kw_only=True, slots=True)
class Peak:
    """FLOP/s to divide by, and where they are from."""

    flops_per_second: float
    kind: Literal["data-sheet", "measured", "given"]
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Flops:
    """A model's FLOPs per token, counted by `formula`; with what is computed again, None where nobody can tell."""

    per_token: float
    formula: str
    hardware_per_token: float | None


def utilization_of(
    plan: Plan,
    device_name: str,
    tokens_per_second_per_rank: float | None,
    *,
    measured_peak: RunPeak | None = None,
) -> Utilization:
    """Return the utilization of one device that trains `tokens_per_second_per_rank`; None: no step was timed.

    mfu = flops_per_token x tokens per second and rank / peak, with the plan's flops_per_token; `flops_formula` states
    the convention. hfu counts the activations that gradient checkpointing computes again; see
    `hardware_flops_per_token`. `measured_peak` stands in for a device that the table does not have, and says so. Both
    are None, with the reason, where a part is missing, and where the share comes out above 1: then an input is wrong,
    and the number would be too.
    """
    return shares_of_peak(
        _flops_of(plan),
        peak_of(plan.world.device, device_name, plan.recipe.training.precision, measured_peak),
        tokens_per_second_per_rank,
        no_rate="no step was timed" if tokens_per_second_per_rank is None else None,
    )


def shares_of_peak(
    flops: Flops | str, peak: Peak | str, tokens_per_second_per_rank: float | None, *, no_rate: str | None
) -> Utilization:
    """Return the utilization of one device; `flops`, `peak` and `no_rate` may say why one of the parts is missing.

    Both shares are None, with the first of these reasons, and where one comes out above 1.
    """
    tokens = tokens_per_second_per_rank
    counted = None if isinstance(flops, str) else flops
    known = None if isinstance(peak, str) else peak
    achieved = None if counted is None or tokens is None else counted.per_token * tokens
    reason = no_rate or (flops if isinstance(flops, str) else None) or (peak if isinstance(peak, str) else None)
    mfu = hfu = None
    if reason is None and counted is not None and known is not None and tokens is not None:
        mfu = counted.per_token * tokens / known.flops_per_second
        if counted.hardware_per_token is not None:
            hfu = counted.hardware_per_token * tokens / known.flops_per_second
        largest = max(mfu, hfu or 0.0)
        if largest > 1:
            reason = impossible(largest, known)
            mfu = hfu = None
    return Utilization(
        model_flops_per_second_per_rank=achieved,
        peak_flops_per_second=None if known is None else known.flops_per_second,
        mfu=mfu,
        hfu=hfu,
        reason=reason,
        flops_per_token=None if counted is None else counted.per_token,
        flops_formula=None if counted is None else counted.formula,
        peak_kind=None if known is None else known.kind,
        peak_source=None if known is None else known.source,
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
    return with_recomputation(size.flops_per_token, output_parameters=model.vocab_size * model.hidden_size)


def _flops_of(plan: Plan) -> Flops | str:
    size, model = plan.model_size, plan.recipe.model
    if size is None or model is None:
        return "the recipe has no model, so its FLOPs per token are not known"
    formula = flops_formula(
        size.parameters,
        layers=model.layers,
        hidden_size=model.hidden_size,
        sequence_length=str(model.sequence_length),
        embedding_parameters=size.embedding_parameters,
    )
    return Flops(
        per_token=float(size.flops_per_token), formula=formula, hardware_per_token=hardware_flops_per_token(plan)
    )


def with_recomputation(flops_per_token: float, *, output_parameters: int) -> float:
    """Return the FLOPs per token of a model that runs the forward pass of its blocks twice; see above.

    `output_parameters` are those of the projection after the blocks.
    """
    return flops_per_token + (flops_per_token - 6 * output_parameters) / 3


def peak_of(device: str, device_name: str, precision: str, measured: RunPeak | None) -> Peak | str:
    """Return the peak to divide by at `precision` (a recipe's, or a data type's name), or why there is none.

    The vendor's where there is one, else the `measured` one.
    """
    listed = device_peak(device_name) if device == "cuda" else None
    if listed is not None:
        rate = peak_flops_per_second(device_name, precision)
        if rate is None:
            return f"{device_name!r} has no matrix unit for {precision}"
        return Peak(flops_per_second=rate, kind="data-sheet", source=listed.source)
    if device == "cpu":
        why = "a cpu has no peak to divide by: it depends on the cores, their clock and their vector units"
    else:
        why = f"the peak FLOP/s of {device_name!r} is not known to gradwire"
    if measured is None:
        return f"{why}; `gradwire doctor --peak` measures one"
    found = measured_rate(measured, device, device_name, precision)
    if isinstance(found, str):
        return f"{why}, and {found}"
    return Peak(flops_per_second=found.flops_per_second, kind="measured", source=rate_in_words(found, measured.peak))


def impossible(share: float, peak: Peak) -> str:
    """Return what a `share` of `peak` above 1 means, and what to look at."""
    if peak.kind == "data-sheet":
        return impossible_share(share)
    if peak.kind == "given":
        return impossible_share(share, of="the given peak", also=", that the peak is dense and of one device")
    also = ", that the peak was measured while nothing else ran"
    return impossible_share(share, of="the measured peak", also=also)
