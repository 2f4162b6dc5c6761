"""Model FLOP/s utilization of any training loop, from its own numbers; or why there is none."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from gradwire.errors import UsageError
from gradwire.measure.peaks import device_peak, peak_flops_per_second

Precision = Literal["fp32", "tf32", "bf16-mixed", "bf16-true", "fp16-mixed"]


class ModelFlopsUtilization(NamedTuple):
    """A share of the device's peak, 0 to 1, and None; or None and the reason."""

    mfu: float | None
    reason: str | None


def model_flops_utilization(
    flops_per_token: float,
    tokens_per_second: float,
    *,
    device_name: str | None = None,
    precision: Precision = "bf16-mixed",
    peak: float | None = None,
) -> ModelFlopsUtilization:
    """Return flops_per_token x tokens_per_second / peak, both of *one* device.

    `device_name` is what `torch.cuda.get_device_name()` returns, and `precision` that of the matrix products; or
    `peak` is the dense peak in FLOP/s (a data sheet's rate with sparsity is twice that), or what
    `gradwire doctor --peak` measured. A device that is not in the table has no share. A share above 1 cannot be: an
    input is wrong, and the reason says so in the place of the number.

    Raises UsageError for a rate or a peak that is no finite number of at least 0, and unless exactly one of
    `device_name` and `peak` is given.
    """
    for name, value in (("flops_per_token", flops_per_token), ("tokens_per_second", tokens_per_second)):
        if not math.isfinite(value) or value < 0:
            raise UsageError(f"{name} must be a finite number of at least 0; got {value!r}")
    if (device_name is None) == (peak is None):
        raise UsageError("give device_name, for the peak in the table, or peak, the device's dense FLOP/s; one of them")
    if device_name is not None:
        if device_peak(device_name) is None:
            return ModelFlopsUtilization(None, f"the peak FLOP/s of {device_name!r} is not known to gradwire")
        peak = peak_flops_per_second(device_name, precision)
        if peak is None:
            return ModelFlopsUtilization(None, f"{device_name!r} has no matrix unit for {precision}")
    if peak is None or not math.isfinite(peak) or peak <= 0:
        raise UsageError(f"peak must be a finite number above 0; got {peak!r}")
    share = flops_per_token * tokens_per_second / peak
    return ModelFlopsUtilization(None, impossible_share(share)) if share > 1 else ModelFlopsUtilization(share, None)


def impossible_share(share: float, *, of: str = "the device's peak", also: str = "") -> str:
    """Return what a `share` above 1 means and what to look at; `also` is one more thing, `, that ...`."""
    return (
        f"the inputs are wrong: {share:.0%} of {of} cannot be. Check that the device was synchronised before the "
        f"clock was read{also} and that every token was trained; attention is counted whole, so a causal kernel over "
        "very long sequences does up to half less than counted"
    )
