"""The files of one training job together with what is known about its launch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from gradwire.targets.schema import checked_version
from gradwire.targets.tree import Document, Kind


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchFacts:
    """What the command line of a launch settles beside the files; None: not known.

    `num_processes` is the world size over all machines; `hidden_size` is the width of the model's hidden states
    and `model_class` the name of its class, such as BertForMaskedLM. `program` is what runs the training loop, where
    that has rules of its own for the files.
    """

    num_processes: int | None = None
    num_machines: int | None = None
    mixed_precision: str | None = None
    hidden_size: int | None = None
    model_class: str | None = None
    program: Literal["lightning"] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Versions:
    """The library versions that will read the files."""

    deepspeed: str = field(default_factory=lambda: checked_version("deepspeed"))
    accelerate: str = field(default_factory=lambda: checked_version("accelerate"))

    def of(self, library: str) -> str:
        """The version of one library."""
        return self.deepspeed if library == "deepspeed" else self.accelerate


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """At most one file of each kind that belong to one run, and the facts of its launch."""

    deepspeed: Document | None = None
    accelerate: Document | None = None
    trainer: Document | None = None
    facts: LaunchFacts = LaunchFacts()
    versions: Versions = field(default_factory=Versions)

    def document(self, kind: Kind) -> Document | None:
        """The job's file of one kind."""
        match kind:
            case "deepspeed":
                return self.deepspeed
            case "accelerate":
                return self.accelerate
            case "trainer":
                return self.trainer

    @property
    def num_processes(self) -> int | None:
        """World size: from the command line, else from the Accelerate file."""
        if self.facts.num_processes is not None:
            return self.facts.num_processes
        written = self.accelerate.value("num_processes") if self.accelerate else None
        return written if isinstance(written, int) and not isinstance(written, bool) and written > 0 else None

    @property
    def mixed_precision(self) -> str | None:
        """Precision that Accelerate is started with: from the command line, else from its file."""
        if self.facts.mixed_precision is not None:
            return self.facts.mixed_precision
        written = self.accelerate.value("mixed_precision") if self.accelerate else None
        return written.lower() if isinstance(written, str) else None
