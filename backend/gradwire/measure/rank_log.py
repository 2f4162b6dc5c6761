"""What each rank of a watched command writes down, line by line, and reading it while it grows and after a kill."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from gradwire.measure.marks import Mark, StepParts, split_step

Products = Literal["fp32", "tf32", "bf16", "fp16", "fp8"]

FOLDER = "ranks"
SUFFIX = ".jsonl"


class RankStart(Struct, frozen=True, kw_only=True, tag="rank"):
    """The first line of a rank: its place, and what it runs on.

    `world_size` is that of its process group, `attempt` how often the launcher had started all ranks anew before.
    """

    rank: int
    world_size: int
    ranks_on_node: int
    pid: int
    script: str
    started_at: str
    device: Literal["cuda", "cpu"]
    device_name: str | None
    threads: int
    warmup_steps: int
    library: Literal["native", "accelerate", "deepspeed"]
    versions: dict[str, str | None]
    attempt: int = 0


class RankStep(Struct, frozen=True, kw_only=True, tag="step"):
    """One finished step: its marks, the seconds before each, and counts, None where they could not be told.

    What the seconds were spent on is worked out by who reads it: the process that is measured has a step to make.
    """

    step: int
    marks: list[Mark]
    seconds: list[float]
    passes: int
    samples: int | None
    tokens: int | None
    slots: int | None

    def seen(self) -> SeenStep:
        """Return the step as a measurement needs it."""
        return SeenStep(
            parts=split_step(self.marks, self.seconds),
            passes=self.passes,
            samples=self.samples,
            tokens=self.tokens,
            slots=self.slots,
        )


class SeenStep(Struct, frozen=True, kw_only=True, gc=False):
    """One finished step: what its seconds were spent on, and its counts. Runs have millions of them, so it is small."""

    parts: StepParts
    passes: int
    samples: int | None
    tokens: int | None
    slots: int | None


class RankShape(Struct, frozen=True, kw_only=True):
    """What a model's FLOPs per token are counted from; None: it could not be told from the model.

    `embedding_parameters` are those of tables that take part in no matrix product, `output_parameters` those of the
    output projection, which gradient checkpointing does not compute again. `reason`: why no count of this kind is the
    model's, whatever else is known of it; None where it is.
    """

    parameters: int
    embedding_parameters: int
    layers: int | None
    hidden_size: int | None
    output_parameters: int | None
    reason: str | None


class RankSubject(Struct, frozen=True, kw_only=True):
    """What was trained, in the words of a measurement's workload; `model` None: it was not found.

    `products` is the data type of its matrix products; None: it could not be told.
    """

    model: str | None
    optimizer: str
    precision: str
    strategy: str
    compile: bool
    gradient_checkpointing: bool
    shape: RankShape
    products: Products | None


class RankFacts(Struct, frozen=True, kw_only=True, tag="facts"):
    """What is known after some steps; the last such line counts. Peaks are bytes, energy is since the warm-up."""

    peak_process_bytes: int
    peak_device_allocated_bytes: int | None
    peak_device_reserved_bytes: int | None
    joules: float | None
    joules_seconds: float
    joules_device: str | None
    joules_reason: str | None
    subject: RankSubject
    notes: list[str]


class RankLog(Struct, frozen=True, kw_only=True):
    """One rank's file so far; `facts` None: it got no further than its first line."""

    start: RankStart
    steps: list[SeenStep]
    facts: RankFacts | None


class RankWriter:
    """Appends to a rank's file; a line is one call of the operating system, so a killed process leaves whole ones."""

    def __init__(self, folder: Path, start: RankStart) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{start.rank:05d}-{start.pid}{SUFFIX}"
        self._descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self.write(start)

    def write(self, line: RankStart | RankStep | RankFacts) -> None:
        """Append `line`."""
        rest = _ENCODER.encode(line) + b"\n"
        while rest:
            # A disk that becomes full takes a part of it, and says so at the next call only.
            rest = rest[os.write(self._descriptor, rest) :]


def has_rank_logs(folder: Path) -> bool:
    """Return whether ranks of a watched command wrote into `folder`."""
    return any((folder / FOLDER).glob(f"*{SUFFIX}"))


class RankReader:
    """Reads the ranks' files of a folder again and again, each time only what is new: runs are of millions of steps."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._logs: dict[Path, RankLog] = {}

    def read(self) -> Sequence[RankLog]:
        """Return the ranks so far, in rank order; a line that is not finished is left for the next time.

        Raises msgspec.DecodeError for a file that no rank wrote.
        """
        for file in sorted(self._folder.glob(f"*{SUFFIX}")):
            with file.open("rb") as opened:
                opened.seek(self._read.get(file, 0))
                *lines, _ = opened.read().split(b"\n")
            if lines:
                self._logs[file] = _grown(self._logs.get(file), [_DECODER.decode(line) for line in lines])
                self._read[file] = self._read.get(file, 0) + sum(len(line) + 1 for line in lines)
        return sorted(self._logs.values(), key=lambda log: (log.start.rank, log.start.pid))


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(RankStart | RankStep | RankFacts)


def _grown(log: RankLog | None, lines: Sequence[RankStart | RankStep | RankFacts]) -> RankLog:
    """The log with what came to it; its list of steps is the same one, longer."""
    if log is None:
        start = lines[0]
        if not isinstance(start, RankStart):
            raise msgspec.ValidationError("the first line of a rank's file says which rank it is")
        log = RankLog(start=start, steps=[], facts=None)
    log.steps.extend(line.seen() for line in lines if isinstance(line, RankStep))
    facts = [line for line in lines if isinstance(line, RankFacts)]
    return msgspec.structs.replace(log, facts=facts[-1]) if facts else log
