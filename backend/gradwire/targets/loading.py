"""Reads one configuration file of another program, whatever its format, or says where and why it cannot be read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gradwire.errors import UsageError
from gradwire.reading import read_text
from gradwire.targets.hjson_text import TextError, parse_hjson
from gradwire.targets.schema import load_schema
from gradwire.targets.tree import Document, Kind, Repeat, Syntax
from gradwire.targets.yaml_text import parse_yaml

MAX_BYTES = 1024 * 1024
"""Largest file that is read: a hundred times a usual one."""

_TRAINER_ARGUMENTS = frozenset(
    {
        "per_device_train_batch_size", "per_device_eval_batch_size", "output_dir", "num_train_epochs", "learning_rate",
        "lr_scheduler_type", "max_grad_norm", "warmup_ratio", "warmup_steps", "max_steps", "save_strategy",
        "logging_steps", "eval_strategy", "evaluation_strategy", "gradient_checkpointing", "adam_beta1",
        "accelerator_config", "optim", "deepspeed", "fsdp", "fsdp_config",
    }
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Unreadable:
    """A file that could not be read: where it stops making sense, from 1, and why.

    `is_text` is false only where the text is fine and holds something else than keys with values.
    """

    source: str
    line: int
    column: int
    message: str
    is_text: bool = True

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}: {self.message}"


def load_document(path: Path, *, kind: Kind | None = None) -> Document | Unreadable:
    """Read one file; `kind` says what it is, None: look at it."""
    source = str(path)
    try:
        text = read_text(path, max_bytes=MAX_BYTES, what="a configuration file")
    except UsageError as error:
        return Unreadable(source=source, line=1, column=1, message=str(error))
    return parse_document(text, source=source, kind=kind)


def parse_document(text: str, *, source: str, kind: Kind | None = None) -> Document | Unreadable:
    """Read the text of one file; the suffix of `source` says whether it is YAML."""
    repeats: list[Repeat]
    strict_error: str | None = None
    syntax: Syntax = "yaml"
    try:
        if source.lower().endswith((".yaml", ".yml")):
            root, repeats = parse_yaml(text)
        else:
            root, repeats, syntax, strict_error = parse_hjson(text)
    except TextError as error:
        before = text[: error.offset]
        line, column = before.count("\n") + 1, error.offset - (before.rfind("\n") + 1) + 1
        return Unreadable(source=source, line=line, column=column, message=str(error))
    if root.members is None:
        message = "the top level is no mapping of keys to values"
        return Unreadable(source=source, line=1, column=1, message=message, is_text=False)
    return Document(
        source=source,
        text=text,
        kind=kind or kind_of(root.members, syntax),
        syntax=syntax,
        root=root,
        repeats=tuple(repeats),
        strict_error=strict_error,
        starts_with_mark=text.startswith("\ufeff"),
    )


def kind_of(names: Iterable[str], syntax: Syntax) -> Kind:
    """What a file configures, by the keys at its top level."""
    written = set(names)
    own = load_schema("accelerate")["$defs"]["LocalMachine"]["properties"].keys() - {"fp16"}
    scores: dict[Kind, int] = {
        "accelerate": 2 * len(written & {"distributed_type", "compute_environment"}) + len(written & own),
        "trainer": len(written & _TRAINER_ARGUMENTS),
        "deepspeed": len(written & load_schema("deepspeed")["properties"].keys()),
    }
    best = max(scores.values())
    usual: Kind = "accelerate" if syntax == "yaml" else "deepspeed"
    if best == 0 or scores[usual] == best:
        return usual
    return next(kind for kind, score in scores.items() if score == best)
