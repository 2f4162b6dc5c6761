"""Rules for the values of an Accelerate file: what the launcher and the plugins make of one that does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gradwire.lint.edits import quoted, replace_value
from gradwire.lint.finding import Severity
from gradwire.lint.rule import Hit, Rule, shown
from gradwire.targets.job import Job
from gradwire.targets.schema import Spec, Visit, section_of, value_of, visit
from gradwire.targets.tree import Document
from gradwire.targets.values import describe, in_range, types_of, written_number

TRUTH_WORDS = frozenset({"y", "yes", "t", "true", "on", "1", "n", "no", "f", "false", "off", "0"})
"""What accelerate.utils.str_to_bool takes, in any case."""

_STARTS_ONE = ("NO", "MULTI_CPU", False)


def yaml_words(document: Document, job: Job) -> Iterator[Hit]:
    """no, NO, off and their like where a word is meant: YAML makes a boolean of them."""
    for each in visit(document):
        value, spec = each.member.node.data, each.says
        if (
            not spec.get("x-word")
            or not isinstance(value, bool)
            or each.path == "downcast_bf16"
            or document.syntax != "yaml"
        ):
            continue
        if each.path == "distributed_type" and document.value("compute_environment") == "AMAZON_SAGEMAKER":
            continue  # Nothing is launched there either way: AC213.
        word = "no" if each.member.name == "mixed_precision" else "NO"
        written = document.text[each.member.node.start : each.member.node.end]
        effect, works = _boolean_effect(document, each)
        yield Hit(
            at=each.member.node,
            path=each.path,
            message=f"{each.member.name}: {written} without quotes is the boolean {shown(value)} in YAML",
            effect=effect,
            fix=f"write {describe(spec)}" if value else f"write '{word}'",
            severity="warning" if works else None,
            edits=() if value else replace_value(each.member, quoted(document, word)),
        )


def _boolean_effect(document: Document, each: Visit) -> tuple[str, bool]:
    if each.member.name != "distributed_type":
        return "accelerate launch ends in a traceback: a boolean has no .lower()", False
    if each.member.node.data:
        return "it is none of the types, so one process starts", False
    if document.has("num_processes"):
        return "it works as 'NO' by accident, because false is none of the other types", True
    return (
        "the number of processes is not set to 1, as 'NO' would: accelerate launch stops and asks for --num_processes",
        False,
    )


def numbers_as_text(document: Document, job: Job) -> Iterator[Hit]:
    """1e-4 and its like, which YAML 1.1 reads as text."""
    for each in visit(document):
        text = _scientific_text(document, each)
        if text is not None:
            yield Hit(
                at=each.member.node,
                path=each.path,
                message=f"{each.member.name}: {each.member.node.data} is text in YAML 1.1, not a number",
                effect=f'accelerate launch gets "{each.member.node.data}"',
                fix=f"write {text}",
                severity=None if _stops_at_text(document, each) else "warning",
                edits=replace_value(each.member, text),
            )


def _scientific_text(document: Document, each: Visit) -> str | None:
    """How to write the number that YAML reads as text, or None where it reads no number so."""
    value = each.member.node.data
    if document.syntax != "yaml" or not isinstance(value, str) or each.member.node.quoted or value.strip().isdigit():
        return None
    return written_number(value) if {"integer", "number"} & set(types_of(each.says)) else None


def _stops_at_text(document: Document, each: Visit) -> bool:
    if each.path in ("num_processes", "num_machines", "main_process_port"):
        return True
    if each.member.name in ("fsdp_min_num_params", "min_num_params"):
        return str(value_of(document, "fsdp_config", "fsdp_auto_wrap_policy")).upper() == "SIZE_BASED_WRAP"
    return _is_active(document, each) and "number" not in types_of(each.says)


def wrong_values(document: Document, job: Job) -> Iterator[Hit]:
    """Values that stop the launcher or a plugin, and values that nothing checks."""
    for each in visit(document):
        spec, value = each.spec, each.member.node.data
        if spec is None or spec.get("x-lax") or spec.get("x-inert") or (spec.get("x-word") and isinstance(value, bool)):
            continue
        if (
            _scientific_text(document, each) is not None
            or not _is_read(document, each)
            or _fits(document, each, spec, value)
        ):
            continue
        effect, severity = _effect(document, each, spec, value)
        text = _intended(spec, value)
        yield Hit(
            at=each.member.node,
            path=each.path,
            message=f"{each.member.name} is {shown(value)}; expected {describe(spec)}",
            effect=effect,
            fix=f"write {text}" if text else f"write {describe(spec)}",
            severity=severity,
            edits=replace_value(each.member, text) if text else (),
        )


def _is_read(document: Document, each: Visit) -> bool:
    """Whether a key of FSDP is one of the version that the file uses; the others have a rule of their own."""
    versions = each.says.get("x-when", {}).get("fsdp_version")
    return versions is None or value_of(document, "fsdp_config", "fsdp_version", 1) in versions


def _fits(document: Document, each: Visit, spec: Spec, value: Any) -> bool:
    kinds = types_of(spec)
    if value is None:
        by_environment = each.section_path in ("fsdp_config", "parallelism_config") and _is_active(document, each)
        required = by_environment or each.path in ("num_machines", "use_cpu")
        return "null" in kinds or None in spec.get("enum", ()) or not required
    if "enum" in spec:
        if isinstance(value, str) and spec.get("x-case") != "exact":
            return value.upper() in {str(each).upper() for each in spec["enum"] if each is not None}
        return value in spec["enum"] and not isinstance(value, bool | float)
    if section_of("accelerate", spec) is not None:
        return isinstance(value, dict)
    if isinstance(value, dict):
        return "object" in kinds
    if isinstance(value, bool):
        return "boolean" in kinds
    if isinstance(value, int | float):
        number = ("number" in kinds or ("integer" in kinds and isinstance(value, int))) and in_range(spec, value)
        return number or ("boolean" in kinds and value in (0, 1))
    if isinstance(value, list):
        return "array" in kinds
    return _text_fits(spec, kinds, str(value))


def _text_fits(spec: Spec, kinds: list[str], value: str) -> bool:
    pattern = spec.get("pattern")
    if "string" not in kinds:
        return False
    if pattern == "^auto$":
        return value == "auto"
    if pattern == "^[0-9]+$":
        return value.strip().isdigit()
    return pattern is None or value.strip().lower() in TRUTH_WORDS


def _intended(spec: Spec, value: Any) -> str | None:
    if types_of(spec)[:1] == ["string"] and isinstance(value, int) and not isinstance(value, bool):
        return f"'{value}'"
    if types_of(spec)[:1] == ["integer"] and isinstance(value, str) and value.strip().isdigit():
        return value.strip()
    return None


UNCHECKED = "Accelerate does not check it"


def _effect(document: Document, each: Visit, spec: Spec, value: Any) -> tuple[str, Severity]:
    """What happens at a value that does not fit, and how bad that is."""
    name, alone = each.member.name, document.value("distributed_type") in _STARTS_ONE
    if section_of("accelerate", spec) is not None:
        stops = name == "deepspeed_config" and document.value("distributed_type") == "DEEPSPEED"
        return (
            "accelerate launch ends in a traceback" if stops else "it is no section, so Accelerate passes over it"
        ), "error"
    match name:
        case "distributed_type":
            return (
                "accelerate launch refuses it"
                if isinstance(value, str)
                else "it is none of the types, so one process starts"
            ), "error"
        case "compute_environment" | "mixed_precision" | "dynamo_backend":
            return (
                "accelerate launch refuses it" if isinstance(value, str) else "accelerate launch ends in a traceback"
            ), "error"
        case "gpu_ids":
            return "accelerate launch ends in a traceback: only text can be split at its commas", "error"
        case "num_processes":
            return _process_count(document, value, alone)
        case "num_machines":
            if isinstance(value, bool) or (isinstance(value, int | float) and value < 1):
                return "it counts as one machine", "warning"
            return "accelerate launch ends in a traceback, or the processes cannot be split over the machines", "error"
        case "main_process_port":
            stops = not isinstance(value, bool) and not alone
            return (
                "accelerate launch ends in a traceback: it is no port" if stops else UNCHECKED
            ), "error" if stops else "warning"
        case "use_cpu":
            known = str(value).lower() in TRUTH_WORDS
            return (
                "accelerate launch stops: invalid truth value" if alone and not known else UNCHECKED
            ), "error" if alone and not known else "warning"
    return _plugin_effect(document, each, spec, value)


def _is_active(document: Document, each: Visit) -> bool:
    """Whether the section of a key is read under the file's distributed_type."""
    active = {
        "deepspeed_config": ("DEEPSPEED",),
        "fsdp_config": ("FSDP",),
        "parallelism_config": ("FSDP", "DEEPSPEED", "MULTI_GPU"),
    }
    return document.value("distributed_type") in active.get(each.section_path, ())


def _process_count(document: Document, value: Any, alone: bool) -> tuple[str, Severity]:
    machines = document.value("num_machines", 1)
    if isinstance(value, str) and value.strip().isdigit() and not alone and machines in (1, None):
        return "it works on one machine and ends in a traceback on several", "warning"
    if isinstance(value, str | list | dict):
        return "accelerate launch ends in a traceback, or torchrun refuses the number", "error"
    if alone:
        return "one process starts", "error"
    return "torchrun refuses the number", "error"


def _plugin_effect(document: Document, each: Visit, spec: Spec, value: Any) -> tuple[str, Severity]:
    """The same for the keys of a section, which travel as text through the environment."""
    name = each.member.name
    if not _is_active(document, each) or name in ("deepspeed_multinode_launcher", "zero3_save_16bit_model"):
        return UNCHECKED, "warning"
    for part in ("cp", "sp"):
        details = name.startswith(f"parallelism_config_{part}_") and not name.endswith(("_size", "_backend"))
        size = document.value(f"parallelism_config.parallelism_config_{part}_size", 1)
        if details and not (isinstance(size, int) and size > 1):
            return f"it does nothing: parallelism_config_{part}_size is 1", "warning"
    if name == "deepspeed_config_file":
        return "Accelerate finds no file of that name and refuses to start", "error"
    if name.startswith("offload_") and value == "auto":
        return "DeepSpeed drops the word: nothing is offloaded", "warning"
    if name == "gradient_clipping" and isinstance(value, int | float) and not isinstance(value, bool):
        return "DeepSpeed takes it and does not clip", "warning"
    text = str(value).strip()
    kinds = set(types_of(spec))
    if isinstance(value, str) and {"integer", "number"} & kinds and written_number(text) is not None:
        compared = name in ("parallelism_config_cp_size", "parallelism_config_sp_size")
        whole = "number" in kinds or text.isdigit()
        if whole and not compared and in_range(spec, float(text)):
            return "it travels as text in any case, and works", "warning"
    if kinds == {"string"} or kinds == {"string", "null"}:
        return (f'it travels as the text "{value}"'), "error" if isinstance(value, list | dict) else "warning"
    return "the run stops when the plugin reads it", "error"


RULES = (
    Rule(
        code="AC103",
        name="yaml-boolean",
        severity="error",
        reads="accelerate",
        check=yaml_words,
        summary="NO or no without quotes, which YAML reads as false.",
    ),
    Rule(
        code="AC104",
        name="yaml-number-as-text",
        severity="error",
        reads="accelerate",
        check=numbers_as_text,
        summary="1e-4 and its like, which YAML 1.1 reads as text.",
    ),
    Rule(
        code="AC105",
        name="wrong-value",
        severity="error",
        reads="accelerate",
        check=wrong_values,
        summary="A value that Accelerate cannot use, or does not check.",
    ),
)
