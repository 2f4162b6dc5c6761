"""What the lab measures, as a table: each configuration is one way to average gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

from gradwire.errors import UsageError

Kind = Literal["alone", "ddp", "torch-fp16", "torch-powersgd", "gradwire"]

ALONE = "alone"
PLAIN = "ddp"
# torch's own PowerSGD over one bucket, by matrix_approximation_rank.
TORCH_POWERSGD = {rank: f"torch-powersgd-r{rank}" for rank in (1, 4, 8, 32)}
# torch's hook needs two steps of full gradients before it may compress with error feedback; so do all others here.
FIRST_COMPRESSED_STEP = 2
# Larger than the emulated model's gradients: everything in one bucket.
_ONE_BUCKET_MB = 100.0
# Closed by the last matrix of a layer of the emulated model: no bucket waits for the next layer.
_ONE_LAYER_MB = 4.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Configuration:
    """One way to average: `alone` averages nothing, `gradwire` is the package's own method by its recipe keys.

    `bucket_cap_mb` is None for torch's own 25 MiB with a first bucket of 1 MiB; with `auto_bucket` the package chooses
    it, as for a recipe that says auto. `compression` holds the keys of a recipe's
    `communication.compression`; for torch's own PowerSGD only `matrix_approximation_rank`.
    """

    name: str
    kind: Kind
    bucket_cap_mb: float | None = None
    auto_bucket: bool = False
    compression: dict[str, Any] = field(default_factory=dict)


def _plain(bucket_cap_mb: float) -> Configuration:
    return Configuration(name=f"ddp@{bucket_cap_mb:g}", kind="ddp", bucket_cap_mb=bucket_cap_mb)


def _torch_powersgd(matrix_approximation_rank: int) -> Configuration:
    return Configuration(
        name=TORCH_POWERSGD[matrix_approximation_rank],
        kind="torch-powersgd",
        bucket_cap_mb=_ONE_BUCKET_MB,
        compression={"matrix_approximation_rank": matrix_approximation_rank},
    )


def _own(name: str, method: str, *, bucket_cap_mb: float, **options: Any) -> Configuration:
    return Configuration(
        name=f"{name}@{bucket_cap_mb:g}",
        kind="gradwire",
        bucket_cap_mb=bucket_cap_mb,
        compression={"method": method, **options},
    )


def _low_rank(name: str, method: str, rank: int, *, wire_dtype: str | None) -> Configuration:
    wire = "" if wire_dtype is None else f"-{wire_dtype}"
    return _own(
        f"{name}-r{rank}{wire}",
        method,
        bucket_cap_mb=_ONE_LAYER_MB,
        matrix_approximation_rank=rank,
        wire_dtype=wire_dtype,
    )


# A name ends in `@` and the bucket's size in MiB where it is given.
TABLE: tuple[Configuration, ...] = (
    Configuration(name=ALONE, kind="alone"),
    Configuration(name=PLAIN, kind="ddp"),
    Configuration(name="ddp@auto", kind="ddp", auto_bucket=True),
    *(_plain(cap) for cap in (1.0, 5.0, _ONE_BUCKET_MB)),
    Configuration(name="torch-fp16", kind="torch-fp16"),
    Configuration(name="torch-fp16@5", kind="torch-fp16", bucket_cap_mb=5.0),
    *(_torch_powersgd(rank) for rank in TORCH_POWERSGD),
    _own("fp16", "fp16", bucket_cap_mb=1.0),
    *(_own("bf16", "bf16", bucket_cap_mb=cap) for cap in (1.0, 5.0)),
    _low_rank("powersgd", "powersgd", 4, wire_dtype=None),
    _low_rank("powersgd", "powersgd", 4, wire_dtype="bf16"),
    _low_rank("powersgd", "powersgd", 32, wire_dtype=None),
    _low_rank("powersgd", "powersgd", 32, wire_dtype="bf16"),
    _low_rank("alternating", "powersgd-alternating", 4, wire_dtype="bf16"),
    _low_rank("alternating", "powersgd-alternating", 32, wire_dtype="bf16"),
    *(_own("int8", "int8", bucket_cap_mb=cap) for cap in (1.0, 5.0)),
    _own("topk", "topk", bucket_cap_mb=5.0),
    *(
        Configuration(name=name, kind="gradwire", compression={"method": "local-sgd", "local_steps": 10, **options})
        for name, options in (("local-sgd-10", {}), ("local-sgd-10-int8", {"difference_dtype": "int8"}))
    ),
)
# They send in one step out of many, which a visit of a few steps may not meet; the convergence benchmark trains them.
TRAINED_ONLY = ("local-sgd-10", "local-sgd-10-int8")

SETS: dict[str, tuple[str, ...]] = {
    "baseline": (PLAIN, TORCH_POWERSGD[4]),
    "buckets": ("ddp*",),
    "torch": ("ddp*", "torch-*"),
    # What the package's promises are about.
    "targets": (
        *("ddp@auto", TORCH_POWERSGD[32], "bf16@1", "powersgd-r4@4.5", "powersgd-r4-bf16@4.5", "powersgd-r32-bf16@4.5"),
        *("alternating-r4-bf16@4.5", "int8@1"),
    ),
    # One of each method: what the convergence benchmark trains.
    "methods": (
        *("bf16@1", "powersgd-r4@4.5", "powersgd-r4-bf16@4.5", "powersgd-r32-bf16@4.5", "alternating-r4-bf16@4.5"),
        *("alternating-r32-bf16@4.5", "int8@1", "topk@5", *TRAINED_ONLY),
    ),
    "all": ("*",),
}


def choose(words: Sequence[str]) -> tuple[Configuration, ...]:
    """Return the configurations that `words` name: a set, a name, or a pattern like `powersgd-*`; in table order.

    `alone` and the two baselines are always among them: every ratio needs them. Raises UsageError for a word that
    names nothing.
    """
    patterns = [ALONE, *SETS["baseline"]]
    for word in words:
        chosen = SETS.get(word, (word,))
        if not any(fnmatchcase(row.name, pattern) for row in TABLE for pattern in chosen):
            known = ", ".join([*SETS, *(row.name for row in TABLE)])
            raise UsageError(f"--configurations {word}: names nothing; known: {known}")
        patterns.extend(chosen)
    return tuple(row for row in TABLE if any(fnmatchcase(row.name, pattern) for pattern in patterns))
