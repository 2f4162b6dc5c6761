"""Rules for the keys of a DeepSpeed file: unknown, removed, renamed, of the wrong type, never read."""

from __future__ import annotations

from collections.abc import Iterator

from gradwire.lint.edits import remove_member, rename, replace_member, replace_value
from gradwire.lint.finding import Edit
from gradwire.lint.rule import Hit, Rule, shown
from gradwire.targets.deepspeed_values import is_removed, misfits, twin_of
from gradwire.targets.job import Job
from gradwire.targets.schema import Visit, is_known_in, visit
from gradwire.targets.suggest import is_comment, suggestion
from gradwire.targets.tree import Document, Member
from gradwire.targets.values import Misfit, describe, is_whole, types_of

TYPO_URL = "https://github.com/deepspeedai/DeepSpeed/issues/653"
REMOVED_URL = "https://github.com/deepspeedai/DeepSpeed/issues/8489"


def _unknown(document: Document, job: Job, treatment: str) -> Iterator[Visit]:
    for each in visit(document):
        name, version = each.member.name, job.versions.deepspeed
        known = each.spec is not None and is_known_in(each.spec, version)
        if not known and each.section["x-unknown-keys"] == treatment and name not in each.section.get("x-removed", {}):
            yield each


def ignored_keys(document: Document, job: Job) -> Iterator[Hit]:
    """Keys that DeepSpeed passes over without a word."""
    for each in _unknown(document, job, "ignored"):
        name = each.member.name
        if each.spec is not None:
            yield Hit(
                at=each.member,
                path=each.path,
                message=f"{name} is known from DeepSpeed {each.spec['x-since']} on",
                effect=f"DeepSpeed {job.versions.deepspeed} ignores it without a word",
                fix=f"upgrade DeepSpeed to {each.spec['x-since']}, or remove the key",
            )
            continue
        meant, fix = suggestion("deepspeed", each)
        remark = is_comment(name) and meant is None
        yield Hit(
            at=each.member,
            path=each.path,
            message=f"unknown key {name}" + (f" (did you mean {meant}?)" if meant else ""),
            effect="DeepSpeed ignores it without a word"
            + ("" if remark else f"; {shown(each.member.node.data)} does nothing"),
            fix="nothing, if it is a remark; else write it as a comment" if remark else fix,
            severity="note" if name == "$schema" else "warning" if remark else None,
            edits=_renamed(document, each, meant),
        )


def refused_keys(document: Document, job: Job) -> Iterator[Hit]:
    """Keys of the sections that pydantic checks; DeepSpeed stops at the first unknown one."""
    for each in _unknown(document, job, "refused"):
        name = each.member.name
        if each.member.node.data == "auto":
            yield Hit(
                at=each.member,
                path=each.path,
                message=f"unknown key {name}",
                effect='DeepSpeed drops every "auto" in this section before it looks at the keys, so this '
                "one does nothing",
                fix=suggestion("deepspeed", each)[1],
            )
            continue
        meant, fix = suggestion("deepspeed", each)
        yield Hit(
            at=each.member,
            path=each.path,
            message=f"unknown key {name} in {each.section_path}" + (f" (did you mean {meant}?)" if meant else ""),
            effect="DeepSpeed refuses to start: extra inputs are not permitted",
            fix=fix,
            edits=_renamed(document, each, meant),
        )


def both_spellings(document: Document, job: Job) -> Iterator[Hit]:
    """The two names that pydantic knows a field by, written side by side; it then knows the second one no more."""
    for each in visit(document):
        twin = twin_of(each)
        if twin is not None:
            yield Hit(
                at=each.member,
                path=each.path,
                message=f"{each.member.name} is another name of {twin}, and both are written",
                effect="DeepSpeed refuses to start: extra inputs are not permitted",
                fix=f"remove {each.member.name}; {twin} is {shown(each.siblings[twin])}",
            )


def _renamed(document: Document, each: Visit, meant: str | None) -> tuple[Edit, ...]:
    listed = each.section.get("x-renamed", {}).get(each.member.name)
    return rename(document, each.member, listed) if listed and meant == listed and listed not in each.siblings else ()


def removed_features(document: Document, job: Job) -> Iterator[Hit]:
    """Sections of features that are gone; DeepSpeed refuses them even when they are switched off."""
    for each in visit(document):
        if not is_removed(each, job.versions.deepspeed):
            continue
        removal = each.section["x-removed"][each.member.name]
        value = each.member.node.data
        off = not value or (isinstance(value, dict) and value.get("enabled") is False)
        yield Hit(
            at=each.member,
            path=each.path,
            message=f"{removal['what']} was removed in DeepSpeed {removal['version']}",
            effect="DeepSpeed refuses to start" + (", although it is switched off here" if off else ""),
            fix=f"remove the key; use {removal['instead']}" if removal["instead"] != "nothing" else "remove the key",
            edits=remove_member(document, each.member) if off else (),
        )


def deprecated_keys(document: Document, job: Job) -> Iterator[Hit]:
    """Old names that still work, with a warning in the log."""
    for each in visit(document):
        spec = each.says
        new = spec.get("x-renamed-to")
        if not spec.get("deprecated") or new is None or each.path == "bfloat16":
            continue
        value = each.member.node.data
        if new in each.siblings and new != "zero_optimization.allgather_bucket_size":
            yield Hit(
                at=each.member,
                path=each.path,
                message=f"{each.member.name} and its new name {new} are both written",
                effect="DeepSpeed refuses to start: it takes the old name or the new one, not both",
                fix=f"remove {each.member.name}",
                severity="error",
            )
            continue
        edits: tuple[Edit, ...] = ()
        if new.startswith("offload_") and value is True:
            edits = replace_member(document, each.member, new, '{"device": "cpu"}')
        elif new.startswith("stage3_"):
            edits = rename(document, each.member, new)
        yield Hit(
            at=each.member,
            path=each.path,
            message=f"{each.member.name} is the old name of {new}",
            effect="it still works, with a warning in the log; a later DeepSpeed may drop it",
            fix="remove it: off is the default"
            if new.startswith("offload_") and value is not True
            else f"write {new}" + (' with {"device": "cpu"}' if new.startswith("offload_") else ""),
            edits=edits,
        )


def old_zero_switch(document: Document, job: Job) -> Iterator[Hit]:
    """zero_optimization: true, the oldest spelling."""
    member = document.member("zero_optimization")
    if member is not None and isinstance(member.node.data, bool):
        stage = int(member.node.data)
        yield Hit(
            at=member,
            path="zero_optimization",
            message=f"zero_optimization: {shown(member.node.data)} is a spelling from before the stages",
            effect=f"DeepSpeed takes it for stage {stage}; Accelerate and the Trainer end in a traceback",
            fix=f'write {{"stage": {stage}}}',
            severity="error" if job.accelerate is not None or job.trainer is not None else None,
            edits=replace_value(member, f'{{"stage": {stage}}}'),
        )


# Sections whose values are first looked at by a feature that most files do not use.
_READ_LATE = ("aio", "activation_checkpointing", "pipeline")


def refused_values(document: Document, job: Job) -> Iterator[Hit]:
    """Values at which DeepSpeed stops, when it reads the file or when it first uses them."""
    for each, misfit in misfits(document):
        if misfit.outcome == "refused" or (misfit.outcome == "out of range" and each.says.get("x-range") == "refused"):
            value, edits = each.member.node.data, _number_from_text(each.member, misfit)
            yield Hit(
                at=each.member.node,
                path=each.path,
                message=f"{each.member.name} is {shown(value)}; expected {misfit.expected}" + _elements_note(each),
                effect="DeepSpeed refuses to start"
                if each.section["x-unknown-keys"] == "refused"
                else "DeepSpeed fails when it reads or first uses it",
                fix=f"write {value.strip() if edits else misfit.expected}",
                severity="warning" if each.section_path in _READ_LATE and value is not None else None,
                edits=edits,
            )


def _elements_note(each: Visit) -> str:
    unit = each.says.get("x-unit")
    return f" (it counts {unit})" if unit in ("elements", "bytes") else ""


def _number_from_text(member: Member, misfit: Misfit) -> tuple[Edit, ...]:
    value = member.node.data
    if isinstance(value, str) and value.strip().isdigit() and "whole number" in misfit.expected:
        return replace_value(member, value.strip())
    return ()


def replaced_values(document: Document, job: Job) -> Iterator[Hit]:
    """Values that are taken for something else without a word."""
    for each, misfit in misfits(document):
        value = each.member.node.data
        ruled = "x-range" in each.says and (is_whole(value) or "number" in types_of(each.says))
        if misfit.outcome == "out of range" and not ruled:
            yield Hit(
                at=each.member.node,
                path=each.path,
                message=f"{each.member.name} is {shown(value)}; expected {misfit.expected}",
                effect="DeepSpeed does not check it",
                fix=f"write {misfit.expected}",
            )
        if misfit.outcome != "replaced":
            continue
        if "x-else" in each.says:
            yield Hit(
                at=each.member.node,
                path=each.path,
                message=f"{each.member.name} is {shown(value)}; expected {misfit.expected}",
                effect=f"DeepSpeed warns in the log and takes it for {shown(misfit.becomes)}",
                fix=f"write {misfit.expected}; {shown(misfit.becomes)} is what you have now",
            )
            continue
        opposite = misfit.becomes is True and isinstance(value, str) and value.lower() not in ("true", "1", "yes", "on")
        yield Hit(
            at=each.member.node,
            path=each.path,
            message=f"{each.member.name} is {shown(value)}, which is not {describe(each.says)}",
            effect=f"DeepSpeed takes it for {shown(misfit.becomes)}",
            fix=f"write {shown(misfit.becomes if not opposite else False)}",
            severity="error" if opposite else None,
            edits=() if opposite else replace_value(each.member, shown(misfit.becomes)),
        )


def inert_keys(document: Document, job: Job) -> Iterator[Hit]:
    """Keys that are parsed and that nothing acts on."""
    for each in visit(document):
        reason = each.says.get("x-inert")
        value = each.member.node.data
        if reason is None or value == each.says.get("default") or each.member.name == "max_grad_norm":
            continue
        strict = each.section_path.startswith("pipeline")
        yield Hit(
            at=each.member,
            path=each.path,
            message=f"{each.member.name} does nothing: {reason}",
            effect=f"DeepSpeed reads {shown(value)} and goes on as if it were not there",
            fix="remove it" + ("; pass it to PipelineModule in the training script" if strict else ""),
            severity="error" if strict else None,
        )


RULES = (
    Rule(
        code="DS101",
        name="ignored-key",
        severity="error",
        reads="deepspeed",
        check=ignored_keys,
        url=TYPO_URL,
        summary="A key that DeepSpeed does not know and ignores without a word.",
    ),
    Rule(
        code="DS102",
        name="refused-key",
        severity="error",
        reads="deepspeed",
        check=refused_keys,
        summary="A key that DeepSpeed does not know and stops at.",
    ),
    Rule(
        code="DS103",
        name="removed-feature",
        severity="error",
        reads="deepspeed",
        check=removed_features,
        url=REMOVED_URL,
        summary="A section of a feature that the installed DeepSpeed no longer has.",
    ),
    Rule(
        code="DS104",
        name="deprecated-key",
        severity="warning",
        reads="deepspeed",
        check=deprecated_keys,
        summary="The old name of a key.",
    ),
    Rule(
        code="DS105",
        name="refused-value",
        severity="error",
        reads="deepspeed",
        check=refused_values,
        summary="A value of a type or outside a range that DeepSpeed stops at.",
    ),
    Rule(
        code="DS106",
        name="replaced-value",
        severity="warning",
        reads="deepspeed",
        check=replaced_values,
        summary="A value that DeepSpeed takes for another one without a word.",
    ),
    Rule(
        code="DS107",
        name="key-without-effect",
        severity="warning",
        reads="deepspeed",
        check=inert_keys,
        summary="A key that DeepSpeed parses and never acts on.",
    ),
    Rule(
        code="DS109",
        name="two-spellings",
        severity="error",
        reads="deepspeed",
        check=both_spellings,
        summary="Both names of one field.",
    ),
    Rule(
        code="DS108",
        name="old-zero-switch",
        severity="warning",
        reads="deepspeed",
        check=old_zero_switch,
        summary="zero_optimization as true or false.",
    ),
)
