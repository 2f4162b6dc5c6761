"""The batch sizes that DeepSpeed works out of those that are written: train = micro x accumulation x ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gradwire.targets.effective import Reading

TRAIN, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Samples per step over all ranks, per rank and pass, passes per step, and the ranks that read different data."""

    train: int
    micro: int
    accumulation: int
    ranks: int


@dataclass(frozen=True, kw_only=True, slots=True)
class NoBatch:
    """Why DeepSpeed refuses the batch sizes, with the numbers, and the key that is to be changed."""

    path: str
    reason: str


def ranks_that_fit(reading: Reading) -> int | None:
    """Return the only number of data-parallel ranks at which all three sizes are true; None: they leave it open."""
    train, micro, steps = (_size(reading.value(name)) for name in (TRAIN, MICRO, STEPS))
    if not (train and micro and steps) or train % (micro * steps):
        return None
    return train // (micro * steps)


def batch_of(reading: Reading, ranks: int) -> Batch | NoBatch:
    """Return the batch that DeepSpeed settles on with `ranks` data-parallel ranks, or why it does not start.

    Follows DeepSpeedConfig._set_batch_related_parameters of DeepSpeed 0.19.8, whose divisions round down.
    """
    train, micro, steps = (_size(reading.value(name)) for name in (TRAIN, MICRO, STEPS))
    if train is None and micro is None:
        return NoBatch(path=MICRO, reason=f"neither {TRAIN} nor {MICRO} is known, and DeepSpeed needs one of them")
    if train is None:
        steps = steps or 1
        train = (micro or 1) * steps * ranks
    elif micro is None:
        steps = steps or 1
        micro = train // ranks // steps
    elif steps is None:
        steps = train // micro // ranks
    found = Batch(train=train, micro=micro or 0, accumulation=steps, ranks=ranks)
    product = found.micro * found.accumulation * ranks
    if found.micro < 1 or found.accumulation < 1 or product != train:
        return NoBatch(path=TRAIN, reason=f"{TRAIN} {train} {_not_the_product(found, reading)}")
    return found


def _not_the_product(found: Batch, reading: Reading) -> str:
    unit = found.ranks
    names = []
    for path, word, size in ((MICRO, "micro batch", found.micro), (STEPS, "accumulation", found.accumulation)):
        if reading.value(path) is not None:
            unit *= size
            names.append(f"{word} {size}")
    product = " x ".join([*names, f"{found.ranks} ranks"])
    below, above = found.train // unit * unit, -(-found.train // unit) * unit
    near = " or ".join(str(size) for size in dict.fromkeys((below, above)) if size > 0)
    if len(names) == 2:
        return f"is not {product} = {unit}; write {unit}, leave it out, or give the number of processes it is for"
    return f"is no multiple of {product} = {unit}; write {near}"


def _size(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
