"""Turns DeepSpeed's scheduler into a recipe's schedule, for the schedulers that a recipe lowers to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gradwire.importing.entry import Carried
from gradwire.targets.effective import Effective

_TYPES = {"WarmupLR": "constant", "WarmupDecayLR": "linear", "WarmupCosineLR": "cosine"}
_PARAMS = "scheduler.params."


def carry_deepspeed_scheduler(values: Mapping[str, Effective]) -> Iterator[Carried]:
    """Yield a recipe's schedule that may be DeepSpeed's, to be lowered and compared.

    `values` are those of `comparable_deepspeed`. DeepSpeed's own schedulers lag one step behind unless
    `last_batch_iteration` says how many steps they are ahead: a lowering writes that, and people do not.
    """
    written = values.get("scheduler.type")
    kind = _TYPES.get(str(written.value)) if written is not None else None
    if written is None or kind is None:
        return
    warmup, begun = values[f"{_PARAMS}warmup_num_steps"], values[f"{_PARAMS}last_batch_iteration"]
    begin = begun.value if isinstance(begun.value, int) else -1
    ahead = max(0, begin + 1 if kind == "cosine" and begin >= 0 else begin)
    steps = warmup.value - ahead if isinstance(warmup.value, int) else 0
    yield _carried("type", kind, written)
    yield _carried("warmup_steps", max(0, steps), warmup)
    total = values.get(f"{_PARAMS}total_num_steps")
    if total is not None and isinstance(total.value, int):
        yield _carried("total_steps", max(1, total.value - ahead), total)
    peak = values.get(f"{_PARAMS}warmup_max_lr") if kind != "cosine" else None
    if peak is not None and isinstance(peak.value, int | float):
        yield Carried(path="training.learning_rate", value=peak.value, sources=(peak,))
    lowest = values[f"{_PARAMS}{'cos_min_ratio' if kind == 'cosine' else 'warmup_min_lr'}"]
    if kind == "cosine":
        yield _carried("min_ratio", lowest.value, lowest)
    elif kind == "linear" and peak is not None and peak.value and lowest.value:
        yield _carried("min_ratio", lowest.value / peak.value, lowest)


def _carried(name: str, value: Any, source: Effective) -> Carried:
    return Carried(path=f"training.scheduler.{name}", value=value, sources=(source,))
