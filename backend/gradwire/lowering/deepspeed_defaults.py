"""Lists the hidden defaults of DeepSpeed that say something else than a recipe, and what a file overwrites of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradwire.documents.lowering_schema import WrittenDefault
from gradwire.lowering.extras import dotted_keys

_PIECES = "elements, not MiB: a smaller model's gradients would leave in one piece, overlapping with nothing"
_OVERLAP = "zero_optimization.overlap_comm"
_PEAK = "scheduler.params.warmup_max_lr"
_HIDDEN: Mapping[str, tuple[Any, str]] = {
    "steps_per_print": (10, "DeepSpeed would print progress on stdout"),
    "gradient_clipping": (1.0, "absent means clipping at 1.0, not off"),
    "zero_force_ds_cpu_optimizer": (
        True,
        "with the optimizer offloaded, DeepSpeed would refuse a program's own torch optimizer",
    ),
    _OVERLAP: (False, "DDP overlaps its reduction; stages 1 and 2 would not"),
    "zero_optimization.reduce_bucket_size": (500_000_000, _PIECES),
    "zero_optimization.allgather_bucket_size": (500_000_000, _PIECES),
    "bf16.check_grad_overflow": (True, "a step with a gradient that is not finite would be skipped"),
    "fp16.loss_scale_window": (1000, "torch's GradScaler grows every 2000 steps"),
    "fp16.hysteresis": (2, "torch's GradScaler shrinks at the first overflow"),
    "optimizer.params.adam_w_mode": (True, "Adam would decay weights decoupled, as AdamW does"),
    "optimizer.params.torch_adam": (False, "an optimizer kernel would be compiled first"),
    "scheduler.params.warmup_type": ("log", "the learning rate would rise with the logarithm of the step"),
    _PEAK: (0.001, "the learning rate would rise to that, whatever the recipe says"),
    "scheduler.params.cos_min_ratio": (0.0001, "the learning rate would fall to that share"),
    "scheduler.params.last_batch_iteration": (
        -1,
        "the first learning rate would be used for two steps, and every later one a step late",
    ),
}
"""By dotted key, the default and what it would do."""


def written_defaults(document: Mapping[str, Any]) -> tuple[WrittenDefault, ...]:
    """Return the hidden defaults that a DeepSpeed `document` overwrites by another value, by key."""
    hidden = dict(_HIDDEN)
    if document["zero_optimization"]["stage"] == 3:
        del hidden[_OVERLAP]
    if document.get("scheduler", {}).get("type") == "WarmupLR":
        hidden[_PEAK] = ("the optimizer's lr", hidden[_PEAK][1])
    written = dict(dotted_keys(document))
    return tuple(
        WrittenDefault(key=key, value=written[key], hidden_default=default, why=why)
        for key, (default, why) in sorted(hidden.items())
        if key in written and written[key] != default
    )
