"""Rules for the keys and values of an Accelerate file."""

from __future__ import annotations

from collections.abc import Iterator

from gradwire.lint.edits import quoted, rename, replace_value
from gradwire.lint.job import Job
from gradwire.lint.rule import Hit, Rule, shown
from gradwire.lint.schema import Spec, Visit, known_paths, root_section, section_of, visit
from gradwire.lint.suggest import suggestion
from gradwire.lint.tree import Document
from gradwire.lint.values import describe, in_range, types_of

PREFETCH_URL = "https://github.com/huggingface/accelerate/issues/1943"

# Settings that people look for in this file and that live elsewhere.
_ELSEWHERE = {
    "gradient_accumulation_steps": "under DEEPSPEED it belongs into deepspeed_config; else it is an argument of Accelerator()",
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
        meant, fix = suggestion("accelerate", each.section, each.section_path, name)
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
        meant, fix = suggestion("accelerate", each.section, each.section_path, name)
        listed = each.section.get("x-renamed", {}).get(name)
        overrides = name in root_section(document)["properties"] or name in _launch_arguments()
        effect = (
            f"accelerate launch sets its own argument {name} from it, over the one that stands elsewhere"
            if overrides
            else f"it is read without a word and does nothing{_instead(listed)}"
        )
        yield Hit(
            at=each.member,
            path=each.path,
            message=f"unknown key {name} in {each.section_path}" + (f" (did you mean {meant}?)" if meant else ""),
            effect=effect,
            fix=fix,
            url=PREFETCH_URL if listed == "fsdp_backward_prefetch" else None,
            edits=rename(document, each.member, listed) if listed and listed not in each.siblings else (),
        )


def _instead(listed: str | None) -> str:
    return "; nothing is prefetched in the backward pass" if listed == "fsdp_backward_prefetch" else ""


def _launch_arguments() -> set[str]:
    return {name for name, paths in known_paths("accelerate").items() if any("." in path for path in paths)}


def yaml_words(document: Document, job: Job) -> Iterator[Hit]:
    """no, NO, off and their like where a word is meant: YAML makes a boolean of them."""
    for each in visit(document):
        value, spec = each.member.node.data, each.spec or {}
        if not spec.get("x-word") or not isinstance(value, bool) or each.path == "downcast_bf16":
            continue
        if document.syntax != "yaml":
            continue
        word = "no" if each.member.name == "mixed_precision" else "NO"
        if value:
            word = "yes"
        written = document.text[each.member.node.start : each.member.node.end]
        effect, works = _boolean_effect(document, each)
        yield Hit(
            at=each.member.node,
            path=each.path,
            message=f"{each.member.name}: {written} without quotes is the boolean {shown(value)} in YAML",
            effect=effect,
            fix=f"write '{word}'" if not value else f"write one of {describe(spec)}",
            severity="warning" if works else None,
            edits=replace_value(each.member, quoted(document, word)) if not value else (),
        )


def _boolean_effect(document: Document, each: Visit) -> tuple[str, bool]:
    if each.member.name == "distributed_type" and not each.member.node.data:
        if document.has("num_processes"):
            return "it works as 'NO' by accident, because false is none of the other types", True
        return "the number of processes is not set to 1, as 'NO' would: accelerate launch stops and asks for --num_processes", False
    return "accelerate launch ends in a traceback: a boolean has no .lower()", False


def numbers_as_text(document: Document, job: Job) -> Iterator[Hit]:
    """1e-4 and its like, which YAML 1.1 reads as text."""
    for each in visit(document):
        value = each.member.node.data
        if document.syntax != "yaml" or not isinstance(value, str) or each.member.node.quoted:
            continue
        kinds = types_of(each.spec or {})
        if not {"integer", "number"} & set(kinds) or not _is_number(value) or value.strip().isdigit():
            continue
        number = float(value)
        text = str(int(number)) if number == int(number) else f"{number:.12f}".rstrip("0")
        yield Hit(
            at=each.member.node,
            path=each.path,
            message=f"{each.member.name}: {value} is text in YAML 1.1, not a number",
            effect=f'accelerate launch gets "{value}"',
            fix=f"write {text}",
            edits=replace_value(each.member, text),
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def wrong_values(document: Document, job: Job) -> Iterator[Hit]:
    """Values that stop the launcher or the plugin."""
    for each in visit(document):
        spec, value = each.spec, each.member.node.data
        if spec is None or spec.get("x-lax") or spec.get("x-inert") or (spec.get("x-word") and isinstance(value, bool)):
            continue
        problem = _problem(spec, value)
        if problem is None or (isinstance(value, str) and _is_number(value) and not each.member.node.quoted and document.syntax == "yaml" and not value.strip().isdigit()):
            continue
        text = _text_fix(spec, value)
        yield Hit(
            at=each.member.node,
            path=each.path,
            message=f"{each.member.name} is {shown(value)}; expected {describe(spec)}",
            effect=problem,
            fix=f"write {text}" if text else f"write {describe(spec)}",
            severity=None if _stops(each) else "warning",
            edits=replace_value(each.member, quoted(document, text) if "string" in types_of(spec) else text) if text else (),
        )


def _stops(each: Visit) -> bool:
    """Whether a wrong value of this key ends the launch; switches arrive as text and are only misread."""
    kinds = set(types_of(each.spec or {}))
    return "boolean" not in kinds and each.member.name not in ("rdzv_backend", "deepspeed_multinode_launcher", "machine_rank")


def _text_fix(spec: Spec, value: object) -> str | None:
    if types_of(spec)[:1] == ["string"] and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if types_of(spec)[:1] == ["integer"] and isinstance(value, str) and value.strip().isdigit():
        return value.strip()
    return None


def _problem(spec: Spec, value: object) -> str | None:
    kinds = types_of(spec)
    if value is None:
        return None
    if "enum" in spec:
        known = value in spec["enum"] and not isinstance(value, bool)
        if isinstance(value, str) and spec.get("x-case") != "exact":
            known = known or value.upper() in {str(each).upper() for each in spec["enum"] if each is not None}
        return None if known else "the run stops: it is none of the values that Accelerate knows"
    if section_of("accelerate", spec) is not None or "object" in kinds:
        return None if isinstance(value, dict) else "it is not a section: Accelerate passes over it, or ends in a traceback"
    if isinstance(value, bool):
        return None if "boolean" in kinds else "accelerate launch ends in a traceback or counts it as a number"
    if isinstance(value, int | float):
        if not {"integer", "number"} & set(kinds):
            if "string" in kinds:
                return "accelerate launch ends in a traceback: a number has no .split()"
            return None if "boolean" in kinds and value in (0, 1) else "Accelerate misreads it"
        if "number" not in kinds and value != int(value):
            return "the number of processes cannot be split: torchrun refuses it or one process starts"
        return None if in_range(spec, value) else "the run stops or starts another number of processes"
    if isinstance(value, str):
        return _text_problem(spec, kinds, value)
    return None if "array" in kinds else "Accelerate cannot read it"


def _text_problem(spec: Spec, kinds: list[str], value: str) -> str | None:
    pattern = spec.get("pattern", "")
    if "string" in kinds and (not pattern or value == "auto" or value.strip().lower() in ("true", "false")):
        return None
    if "string" in kinds and pattern == "^[0-9]+$" and value.strip().isdigit():
        return None
    if "string" in kinds and pattern.startswith("^([Tt]rue"):
        words = ("yes", "no", "on", "off", "1", "0", "y", "n", "t", "f")
        return None if value.strip().lower() in words else "the run stops: it is neither true nor false"
    if "boolean" in kinds:
        return f'it is text, and Accelerate takes text for what it says only in some places (here: "{value}")'
    return "accelerate launch ends in a traceback: text is no number"


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
        new = (each.spec or {}).get("x-renamed-to")
        if new is None or not (each.spec or {}).get("deprecated"):
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
        code="AC101", name="refused-key", severity="error", reads="accelerate", check=unknown_top_level,
        summary="A key at the top level that Accelerate refuses.",
    ),
    Rule(
        code="AC102", name="ignored-key", severity="error", reads="accelerate", check=unknown_nested,
        summary="A key in a section that Accelerate ignores without a word.",
    ),
    Rule(
        code="AC103", name="yaml-boolean", severity="error", reads="accelerate", check=yaml_words,
        summary="NO or no without quotes, which YAML reads as false.",
    ),
    Rule(
        code="AC104", name="yaml-number-as-text", severity="error", reads="accelerate", check=numbers_as_text,
        summary="1e-4 and its like, which YAML 1.1 reads as text.",
    ),
    Rule(
        code="AC105", name="wrong-value", severity="error", reads="accelerate", check=wrong_values,
        summary="A value that Accelerate cannot use.",
    ),
    Rule(
        code="AC106", name="no-distributed-type", severity="error", reads="accelerate", check=missing_type,
        summary="A file without distributed_type.",
    ),
    Rule(
        code="AC107", name="old-key", severity="note", reads="accelerate", check=old_keys,
        summary="An old spelling that still works.",
    ),
)
