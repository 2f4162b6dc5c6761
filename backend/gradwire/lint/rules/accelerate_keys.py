"""Rules for the keys of an Accelerate file: unknown, old, missing."""

from __future__ import annotations

from collections.abc import Iterator

from gradwire.lint.edits import rename
from gradwire.lint.rule import Hit, Rule
from gradwire.targets.accelerate_effective import argument_set_by
from gradwire.targets.job import Job
from gradwire.targets.schema import visit
from gradwire.targets.suggest import suggestion
from gradwire.targets.tree import Document

PREFETCH_URL = "https://github.com/huggingface/accelerate/issues/1943"

# Settings that people look for in this file and that live elsewhere.
_ELSEWHERE = {
    "gradient_accumulation_steps": "under DEEPSPEED it belongs into deepspeed_config; else it is an argument "
    "of Accelerator()",
    "gradient_clipping": "under DEEPSPEED it belongs into deepspeed_config; else call accelerator.clip_grad_norm_()",
    "max_grad_norm": "call accelerator.clip_grad_norm_(), or give it to the Trainer",
    "learning_rate": "it belongs into the training script",
    "lr": "it belongs into the training script",
    "comm_hook": "it is an argument of DistributedDataParallelKwargs in the training script",
    "bucket_cap_mb": "it is an argument of DistributedDataParallelKwargs in the training script",
    "find_unused_parameters": "it is an argument of DistributedDataParallelKwargs in the training script",
    "split_batches": "it is an argument of DataLoaderConfiguration in the training script",
}


def unknown_top_level(document: Document, job: Job) -> Iterator[Hit]:
    """Keys that the loader refuses."""
    for each in visit(document):
        if each.spec is not None or each.section["x-unknown-keys"] != "refused":
            continue
        name = each.member.name
        meant, fix = suggestion("accelerate", each)
        yield Hit(
            at=each.member,
            path=each.path,
            message=f"unknown key {name}" + (f" (did you mean {meant}?)" if meant else ""),
            effect="accelerate launch refuses the file: it had unknown keys",
            fix=fix if meant else _ELSEWHERE.get(name, fix),
        )


def unknown_nested(document: Document, job: Job) -> Iterator[Hit]:
    """Keys inside a section that nothing reads, or that set another argument of the launcher."""
    for each in visit(document):
        if each.spec is not None or each.section["x-unknown-keys"] != "ignored":
            continue
        name = each.member.name
        meant, fix = suggestion("accelerate", each)
        listed = each.section.get("x-renamed", {}).get(name)
        argument = argument_set_by(document, each)
        elsewhere = argument is not None and document.has(argument)
        if argument is None:
            effect = f"it is read without a word and does nothing{_instead(listed)}"
        else:
            effect = f"accelerate launch sets its own argument {name} from it" + (
                f", over the {argument} that is written" if elsewhere else f"; written as {argument}, it would say so"
            )
        yield Hit(
            at=each.member,
            path=each.path,
            message=f"unknown key {name} in {each.section_path}" + (f" (did you mean {meant}?)" if meant else ""),
            effect=effect,
            fix=fix,
            severity="warning" if argument is not None and not elsewhere else None,
            url=PREFETCH_URL if listed == "fsdp_backward_prefetch" else None,
            edits=rename(document, each.member, listed) if listed and listed not in each.siblings else (),
        )


def _instead(listed: str | None) -> str:
    return "; nothing is prefetched in the backward pass" if listed == "fsdp_backward_prefetch" else ""


def missing_type(document: Document, job: Job) -> Iterator[Hit]:
    """A file without distributed_type."""
    if not document.has("distributed_type"):
        yield Hit(
            at=document.root,
            path="distributed_type",
            message="distributed_type is not written",
            effect="accelerate launch refuses the file: a distributed_type must be specified",
            fix="add distributed_type, for example MULTI_GPU",
        )


def old_keys(document: Document, job: Job) -> Iterator[Hit]:
    """Old spellings that the loader rewrites."""
    for each in visit(document):
        new = each.says.get("x-renamed-to")
        if new is None or not each.says.get("deprecated"):
            continue
        if each.member.name == "fp16" and document.has("mixed_precision"):
            effect = "it is ignored beside mixed_precision"
        else:
            effect = f"the loader makes {new} of it"
        yield Hit(
            at=each.member,
            path=each.path,
            message=f"{each.member.name} is the old spelling of {new}",
            effect=effect,
            fix=f"write {new}",
        )


RULES = (
    Rule(
        code="AC101",
        name="refused-key",
        severity="error",
        reads="accelerate",
        check=unknown_top_level,
        summary="A key at the top level that Accelerate refuses.",
    ),
    Rule(
        code="AC102",
        name="ignored-key",
        severity="error",
        reads="accelerate",
        check=unknown_nested,
        summary="A key in a section that Accelerate ignores without a word.",
    ),
    Rule(
        code="AC106",
        name="no-distributed-type",
        severity="error",
        reads="accelerate",
        check=missing_type,
        summary="A file without distributed_type.",
    ),
    Rule(
        code="AC107",
        name="old-key",
        severity="note",
        reads="accelerate",
        check=old_keys,
        summary="An old spelling that still works.",
    ),
)
