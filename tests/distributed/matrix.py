"""Which recipes the backends are compared on: every pair of choices together at least once, in few rows."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping

Row = Mapping[str, str]

CHOICES: dict[str, dict[str, tuple[str, ...]]] = {
    "way": {
        "native ddp": (),
        "native fsdp": ("parallelism.data.strategy=fsdp",),
        "accelerate ddp": (),
        "accelerate zero2": ("parallelism.data.strategy=zero2",),
        "accelerate zero3": ("parallelism.data.strategy=zero3",),
        "deepspeed ddp": (),
        "deepspeed zero1": ("parallelism.data.strategy=zero1",),
        "deepspeed zero2": ("parallelism.data.strategy=zero2",),
        "deepspeed zero3": ("parallelism.data.strategy=zero3",),
        "trainer ddp": (),
        "trainer zero2": ("parallelism.data.strategy=zero2",),
    },
    "schedule": {
        "constant": (),
        "warm-up": ("training.scheduler={type: constant, warmup_steps: 3}",),
        "linear": ("training.scheduler={type: linear, warmup_steps: 1, total_steps: 9}",),
        "cosine": ("training.scheduler={type: cosine, warmup_steps: 2, min_ratio: 0.1}",),
    },
    "optimizer": {
        "Adam": ("training.optimizer=Adam",),
        "AdamW": ("training.optimizer=AdamW",),
        "SGD": ("training.optimizer=SGD", "training.momentum=0.9", "training.learning_rate=0.05"),
    },
    "processes": {"1": (), "2": (), "4": ()},
    "labels": {
        "all": (),
        "token": ("training.loss_weighting=token", "data.min_labels=2"),
        "micro-batch": ("training.loss_weighting=micro-batch", "data.min_labels=2"),
    },
    "precision": {"fp32": (), "bf16-mixed": ("training.precision=bf16-mixed",)},
    "accumulation": {"1": (), "4": ()},
    "clip": {"on": ("training.gradient_clip=0.5",), "off": ("training.gradient_clip=null",)},
}
"""Each choice by name, with what it sets; `processes` and `accumulation` share out the same 16 samples per step."""

IMPOSSIBLE = frozenset({(("optimizer", "Adam"), ("way", "trainer ddp"))})
"""Pairs that a backend refuses: the Trainer's Adam is AdamW, but for the one of a DeepSpeed file."""

COMPILED = ("training.compile=true", "training.compile_backend=eager")
WHOLE = (*COMPILED, "training.compile_regional=false", "training.compile_dynamic=false")

# Not in pairs with the others: the formats in which gradients are kept and travel, and pure bf16.
MORE: tuple[tuple[Row, tuple[str, ...]], ...] = tuple(
    (
        {
            "way": way,
            "schedule": "constant",
            "optimizer": "AdamW",
            "processes": processes,
            "labels": "all",
            "precision": "bf16-mixed",
            "accumulation": "4",
            "clip": "on",
        },
        sets,
    )
    for way, processes, sets in (
        ("native ddp", "4", ("training.precision=bf16-true", "communication.dtype=fp32")),
        ("native fsdp", "2", ("training.precision=bf16-true",)),
        ("accelerate ddp", "2", ("training.precision=bf16-true",)),
        ("deepspeed ddp", "2", ("training.precision=bf16-true",)),
        ("deepspeed zero1", "2", ("training.precision=bf16-true",)),
        ("deepspeed zero3", "2", ("training.precision=bf16-true",)),
        ("deepspeed zero1", "2", ("training.gradient_accumulation_dtype=fp32",)),
        ("deepspeed zero2", "2", ("training.gradient_accumulation_dtype=fp32", "communication.dtype=fp32")),
        ("accelerate zero3", "2", ("training.gradient_accumulation_dtype=fp32",)),
        ("native fsdp", "2", ("communication.dtype=bf16",)),
        ("trainer ddp", "2", ("training.precision=bf16-true",)),
        ("trainer zero2", "2", ("parallelism.data.strategy=zero1",)),
        ("trainer zero2", "2", ("parallelism.data.strategy=zero3",)),
        ("native fsdp", "2", WHOLE),
        ("accelerate zero2", "2", COMPILED),
        ("deepspeed zero1", "2", WHOLE),
        ("trainer ddp", "2", WHOLE),
    )
)


def pairs(row: Row) -> frozenset[tuple[tuple[str, str], tuple[str, str]]]:
    """Return the pairs of choices that `row` has together."""
    return frozenset(itertools.combinations(sorted(row.items()), 2))


def all_pairs() -> set[tuple[tuple[str, str], tuple[str, str]]]:
    """Return every pair of choices of two different kinds."""
    choices = [(kind, name) for kind, names in CHOICES.items() for name in names]
    return {pair for pair in itertools.combinations(sorted(choices), 2) if pair[0][0] != pair[1][0]} - IMPOSSIBLE


def covering_rows(seed: int = 0) -> Iterator[Row]:
    """Yield rows until every pair has been in one; each is the best of some random ones (greedy, always the same)."""
    chance, missing = random.Random(seed), all_pairs()
    while missing:
        first, second = min(missing)
        candidates = [
            {kind: chance.choice(list(names)) for kind, names in CHOICES.items()} | dict((first, second))
            for _ in range(200)
        ]
        candidates = [each for each in candidates if not pairs(each) & IMPOSSIBLE]
        # Four processes on two cores take longest: no more of those than are needed.
        row = max(candidates, key=lambda row: (len(pairs(row) & missing), row["processes"] != "4"))
        missing -= pairs(row)
        yield row


def sets_of(row: Row) -> list[str]:
    """Return what `row` sets in a recipe, as `--set` takes it."""
    shared = int(row["processes"]) * int(row["accumulation"])
    return [
        f"training.num_gpus={row['processes']}",
        f"training.gradient_accumulation={row['accumulation']}",
        f"training.batch_size_per_gpu={16 // shared}",
        *(text for kind, name in row.items() for text in CHOICES[kind][name]),
    ]
