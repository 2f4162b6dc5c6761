"""Reads one configuration file of another program, whatever its format, or says where and why it cannot be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gradwire.errors import UsageError
from gradwire.reading import read_text
from gradwire.targets.hjson_text import TextError, parse_hjson
from gradwire.targets.schema import load_schema
from gradwire.targets.tree import Document, Kind, Member, Node, Repeat, Syntax
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

_TRAINER_MAPPINGS = frozenset({"accelerator_config", "deepspeed", "fsdp_config"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Unreadable:
    """A file that could not be read: where it stops making sense, from 1, and why.

    `is_text` is false only where the text is fine and holds something else than keys with values, or a recipe.
    """

    source: str
    line: int
    column: int
    message: str
    is_text: bool = True
    is_recipe: bool = False

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
    not_one = None if kind else _not_a_configuration(root.members)
    if not_one is not None:
        return Unreadable(
            source=source, line=1, column=1, message=not_one, is_text=False, is_recipe=is_recipe(root.members)
        )
    return Document(
        source=source,
        text=text,
        kind=kind or kind_of(_held(root), syntax),
        syntax=syntax,
        root=root,
        repeats=tuple(repeats),
        strict_error=strict_error,
        starts_with_mark=text.startswith("\ufeff"),
    )


def _held(root: Node) -> list[str]:
    """The keys at the top, but for one that holds a mapping where the Trainer's argument of that name holds none."""
    return [
        name
        for name, member in (root.members or {}).items()
        if member.node.members is None or name not in _TRAINER_ARGUMENTS - _TRAINER_MAPPINGS
    ]


def kind_of(names: Iterable[str], syntax: Syntax) -> Kind:
    """What a file configures, by the keys at its top level."""
    scores = _known_keys(set(names))
    best = max(scores.values())
    usual: Kind = "accelerate" if syntax == "yaml" else "deepspeed"
    if best == 0 or scores[usual] == best:
        return usual
    return next(kind for kind, score in scores.items() if score == best)


def _not_a_configuration(members: Mapping[str, Member]) -> str | None:
    if "format_version" in members:
        return "is a document that Gradwire wrote, not a configuration file"
    if is_recipe(members):
        return "is a recipe: `gradwire validate` checks it, `gradwire lower` makes configuration files of it"
    return None


def is_recipe(members: Mapping[str, Member]) -> bool:
    """Say whether a file with these keys at its top level is a recipe, with a key of another program's at most.

    A key that is a section of recipes and holds a word here is of a file that has no more than the name in common.
    """
    known = load_schema("recipe")["properties"]
    own = [name for name in members if name in known]
    sections = [name for name in own if "string" not in known[name].get("type", ())]
    fits = all(members[name].node.members is not None or members[name].node.data is None for name in sections)
    return bool(own) and fits and len(own) >= max(_known_keys(set(members)).values())


def foreign_kind(names: Iterable[str]) -> Kind | None:
    """Return which program's configuration a file is that is no recipe; None where its keys are no program's."""
    written = set(names)
    scores = _known_keys(written)
    best = max(scores.values())
    return next(kind for kind, score in scores.items() if score == best) if best else None


def _known_keys(written: set[str]) -> dict[Kind, int]:
    """How much of `written` each program knows."""
    own = load_schema("accelerate")["$defs"]["LocalMachine"]["properties"].keys() - {"fp16"}
    return {
        "accelerate": 2 * len(written & {"distributed_type", "compute_environment"}) + len(written & own),
        "trainer": len(written & _TRAINER_ARGUMENTS),
        "deepspeed": len(written & load_schema("deepspeed")["properties"].keys()),
    }
