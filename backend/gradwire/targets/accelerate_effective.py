"""What Accelerate ends up with from its file: every key read, taken for something else, idle or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradwire.targets.effective import Effective, Passed, Reading
from gradwire.targets.job import Job
from gradwire.targets.schema import Spec, Visit, known_paths, root_section, section_of, spec_at, visit
from gradwire.targets.suggest import suggestion
from gradwire.targets.tree import Document, joined
from gradwire.targets.values import types_of

_TRUE, _FALSE = ("y", "yes", "t", "true", "on", "1"), ("n", "no", "f", "false", "off", "0")
_ONLY_ON_SEVERAL_MACHINES = (
    "machine_rank",
    "main_process_ip",
    "rdzv_backend",
    "same_network",
    "deepspeed_config.deepspeed_multinode_launcher",
)
# Names that Accelerate also takes by number, from 1 on.
_NUMBERED: dict[str, tuple[str, ...]] = {
    "fsdp_sharding_strategy": ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"),
    "fsdp_backward_prefetch": ("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"),
    "fsdp_state_dict_type": ("FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"),
}
_MISFIT = object()
# Keys at the top that are none of the launcher's arguments, so that no section can set them.
_NO_ARGUMENTS = ("fp16", "compute_environment", "distributed_type")


def read_accelerate(document: Document, job: Job) -> Reading:
    """Return what `accelerate launch` makes of `document`; where it names a DeepSpeed file, `job` should have that."""
    values: dict[str, Effective] = {}
    idle: list[Passed] = []
    refused: list[Passed] = []
    for each in sorted(visit(document), key=lambda each: argument_set_by(document, each) is not None):
        path = _canonical(each)
        what = _take(document, each, path)
        if isinstance(what, Effective):
            before = values.get(what.path)
            if before is not None and before.member is not None:
                later = f"{each.path} sets the same argument of accelerate launch, after it"
                idle.append(Passed(path=what.path, document=document, member=before.member, reason=later))
            values[what.path] = what
        elif what is not None:
            (refused if what[0] else idle).append(_passed(document, each, what[1]))
    _add_launch_facts(values, job)
    stop = _refused_beside_a_file(values, job)
    for path, effective in list(values.items()):
        member = effective.member
        if member is None:
            continue
        if path in stop:
            refused.append(Passed(path=path, document=document, member=member, reason=stop[path]))
        elif reason := _idle_reason(document, path, values):
            idle.append(Passed(path=path, document=document, member=member, reason=reason))
            del values[path]
    return Reading(values=values, idle=tuple(idle), refused=tuple(refused))


def accelerate_default(path: str, values: Mapping[str, Effective]) -> Any:
    """Return what Accelerate has at a path that the file does not say; None where it has nothing."""
    spec = accelerate_spec(path)
    version = values.get("fsdp_config.fsdp_version")
    known = {
        "mixed_precision": "no",
        "fsdp_config.fsdp_auto_wrap_policy": "NO_WRAP",
        "fsdp_config.fsdp_backward_prefetch": "NO_PREFETCH",
        "fsdp_config.fsdp_state_dict_type": "SHARDED_STATE_DICT"
        if version is not None and version.value == 2
        else "FULL_STATE_DICT",
    }
    if path in known:
        return known[path]
    if path == "deepspeed_config.zero3_init_flag":
        stage = values.get("deepspeed_config.zero_stage")
        return stage is not None and stage.value == 3
    return None if spec is None or spec.get("default") == -1 else spec.get("default")


def accelerate_spec(path: str) -> Spec | None:
    """What the schema says about a dotted path of a file for this machine, or None."""
    return spec_at("accelerate", path)


def argument_set_by(document: Document, each: Visit) -> str | None:
    """The path of the argument that a key sets from a section which does not know it, or None.

    The launcher copies every key of a section to its arguments, over what stands at the top or in an earlier section.
    """
    if each.spec is not None or not each.section_path or "x-prefix" in each.section:
        return None
    name, top = each.member.name, root_section(document)["properties"]
    if name in top and name not in _NO_ARGUMENTS:
        return str(top[name].get("x-renamed-to", name)) if section_of("accelerate", top[name]) is None else None
    return next((path for path in known_paths("accelerate").get(name, ()) if "." in path), None)


def _canonical(each: Visit) -> str:
    prefix, name = each.section.get("x-prefix"), each.member.name
    if each.spec is not None and prefix and name not in each.section["properties"]:
        name = prefix + name
    if each.path == "dynamo_backend":
        return "dynamo_config.dynamo_backend"
    return joined(each.section_path, name)


def _take(document: Document, each: Visit, path: str) -> Effective | tuple[bool, str] | None:
    """Return the value of a key; or whether it is refused, with the reason why it is not one; None for a section."""
    value, spec = each.member.node.data, each.spec
    if spec is None and (argument := argument_set_by(document, each)) is not None:
        path, spec = argument, accelerate_spec(argument)
    if spec is None:
        return _unknown(document, each)
    if section_of("accelerate", spec) is not None:
        if isinstance(value, dict) and value:
            return None
        if not value:
            return False, "an empty section says nothing"
        stops = each.path == "deepspeed_config" and document.value("distributed_type") == "DEEPSPEED"
        return stops, "it must be a section" + ("" if stops else ", so Accelerate passes over it")
    if each.path == "fp16":
        if document.has("mixed_precision"):
            return False, "mixed_precision is written too, and counts"
        return _effective(document, each, "mixed_precision", "fp16" if value else "no", "the old spelling fp16")
    if spec.get("x-inert"):
        return False, str(spec["x-inert"])
    if value is None:
        return False, "null is the same as leaving it out"
    taken = _taken_for(path.rpartition(".")[2], spec, value)
    if taken is _MISFIT:
        return True, f"{value!r} is not what the key takes"
    note = None if taken == value and type(taken) is type(value) else f"written {value!r}, taken for {taken!r}"
    if path not in (each.path, _canonical(each)):
        note = f"accelerate launch sets its argument {each.member.name} from {each.path}"
    return _effective(document, each, path, taken, note)


def _effective(document: Document, each: Visit, path: str, value: Any, note: str | None) -> Effective:
    return Effective(path=path, value=value, origin="written", document=document, member=each.member, note=note)


def _passed(document: Document, each: Visit, reason: str) -> Passed:
    return Passed(path=each.path, document=document, member=each.member, reason=reason)


def _unknown(document: Document, each: Visit) -> tuple[bool, str]:
    meant, _ = suggestion("accelerate", each)
    hint = f" (did you mean {meant}?)" if meant else ""
    if each.section["x-unknown-keys"] == "refused":
        return True, f"accelerate launch does not know it and stops{hint}"
    return False, f"Accelerate does not know it and ignores it{hint}"


def _taken_for(name: str, spec: Spec, value: Any) -> Any:
    """Return a value as Accelerate takes it, or _MISFIT where it does not fit."""
    kinds = types_of(spec)
    if spec.get("x-word") and isinstance(value, bool):
        if name == "downcast_bf16":
            return value
        word = {"distributed_type": "NO"}.get(name, _MISFIT)
        return word if not value else _MISFIT
    if name in _NUMBERED and str(value).isdigit():
        names = _NUMBERED[name]
        return names[int(value) - 1] if 0 < int(value) <= len(names) else _MISFIT
    if "enum" in spec:
        return _enum_member(spec, value)
    if "boolean" in kinds and (isinstance(value, bool) or str(value).strip().lower() in (*_TRUE, *_FALSE)):
        return value if isinstance(value, bool) else str(value).strip().lower() in _TRUE
    if {"integer", "number"} & set(kinds) and type(value) in (int, float, str) and value != "auto":
        return _number(value, whole="number" not in kinds, text="string" in kinds)
    if spec.get("x-lax"):
        return value
    fits = {"string": str, "array": list, "object": dict}
    return value if any(isinstance(value, fits[kind]) for kind in kinds if kind in fits) else _MISFIT


def _enum_member(spec: Spec, value: Any) -> Any:
    for member in spec["enum"]:
        same = str(member).upper() == str(value).upper() if spec.get("x-case") != "exact" else member == value
        if same and member is not None and not isinstance(value, bool):
            return int(member) if isinstance(member, str) and member.isdigit() else member
        if str(member) == str(value) and not isinstance(value, bool):
            return int(value)
    return _MISFIT


def _number(value: Any, *, whole: bool, text: bool) -> Any:
    try:
        number = float(value)
        if not whole:
            return number
        return int(number) if number == int(number) else _MISFIT
    except (ValueError, OverflowError):
        return value if text else _MISFIT


def _add_launch_facts(values: dict[str, Effective], job: Job) -> None:
    for path, value in (
        ("num_processes", job.facts.num_processes),
        ("num_machines", job.facts.num_machines),
        ("mixed_precision", job.facts.mixed_precision),
    ):
        if value is not None:
            before = values.get(path)
            member, document = (before.member, before.document) if before is not None else (None, None)
            values[path] = Effective(
                path=path, value=value, origin="filled", member=member, document=document, note="the launch says so"
            )


def _refused_beside_a_file(values: Mapping[str, Effective], job: Job) -> dict[str, str]:
    """Keys that Accelerate refuses beside deepspeed_config_file."""
    named = values.get("deepspeed_config.deepspeed_config_file")
    kind = values.get("distributed_type")
    if named is None or named.value in ("", "none") or kind is None or kind.value != "DEEPSPEED":
        return {}
    reason = "Accelerate refuses it beside deepspeed_config_file; say it in that file"
    found = {path: reason for path in values if (accelerate_spec(path) or {}).get("x-in-file")}
    if "mixed_precision" in values and job.facts.mixed_precision is None:
        found["mixed_precision"] = reason
    return found


def _idle_reason(document: Document, path: str, values: Mapping[str, Effective]) -> str | None:
    kind = values["distributed_type"].value if "distributed_type" in values else "NO"
    spec, section = accelerate_spec(path) or {}, path.partition(".")[0]
    holder = section_of("accelerate", accelerate_spec(section) or {}) if "." in path else None
    kinds = spec.get("x-distributed-type") or (holder or {}).get("x-distributed-type")
    if kinds is not None and kind not in kinds:
        return f"it is read under distributed_type {kinds[0]}, and this is {kind}"
    stages = spec.get("x-stages")
    stage = values.get("deepspeed_config.zero_stage")
    if stages is not None and (2 if stage is None else stage.value) not in stages and not _names_a_file(values):
        return f"it acts at stage {stages[0]}, and this is stage {2 if stage is None else stage.value}"
    for neighbour, wanted in spec.get("x-when", {}).items():
        other = values.get(joined(section, neighbour))
        actual = accelerate_default(joined(section, neighbour), values) if other is None else other.value
        if str(actual) not in {str(each) for each in wanted}:
            return f"it acts where {neighbour} is {wanted[0]}, and that is {actual}"
    if section == "fp8_config" and ("mixed_precision" not in values or values["mixed_precision"].value != "fp8"):
        return "it acts with mixed_precision fp8 only"
    compiler = values.get("dynamo_config.dynamo_backend")
    if section == "dynamo_config" and (compiler is None or compiler.value == "NO") and not path.endswith("_backend"):
        return "nothing is compiled: dynamo_backend is NO"
    machines = values.get("num_machines")
    if path in _ONLY_ON_SEVERAL_MACHINES and (machines is None or machines.value <= 1):
        return "it acts on several machines only, and this is one"
    return None


def _names_a_file(values: Mapping[str, Effective]) -> bool:
    named = values.get("deepspeed_config.deepspeed_config_file")
    return named is not None and named.value not in ("", "none")
