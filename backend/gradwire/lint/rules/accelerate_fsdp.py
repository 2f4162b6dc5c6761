"""Rules for the FSDP section of an Accelerate file."""

from __future__ import annotations

from collections.abc import Iterator

from gradwire.lint.rule import Hit, Rule
from gradwire.lint.rules.accelerate_launch import distributed_type
from gradwire.targets.job import Job
from gradwire.targets.schema import member_of, value_of, visit
from gradwire.targets.tree import Document

SECTION = "fsdp_config"


def fsdp_pairs(document: Document, job: Job) -> Iterator[Hit]:
    """FSDP settings that the other version ignores or refuses."""
    if distributed_type(document) != "FSDP":
        return
    version = str(value_of(document, SECTION, "fsdp_version", 1))
    for each in visit(document):
        wanted = each.says.get("x-when", {}).get("fsdp_version")
        value, default = each.member.node.data, each.says.get("default")
        if wanted is None or version in {str(item) for item in wanted} or value == default or value is None:
            continue
        if str(value).lower() in ("false", "no_prefetch"):
            continue
        yield Hit(
            at=each.member,
            path=each.path,
            message=f"{each.member.name} is for FSDP version {wanted[0]}; this file uses version {version}",
            effect=f"it does nothing under version {version}",
            fix=f"remove it{_other_version(each.member.name)}",
        )


def _other_version(name: str) -> str:
    twins = {
        "fsdp_sharding_strategy": "; fsdp_reshard_after_forward true is FULL_SHARD, false is SHARD_GRAD_OP",
        "fsdp_reshard_after_forward": "; fsdp_sharding_strategy decides in version 1",
    }
    return twins.get(f"fsdp_{name.removeprefix('fsdp_')}", "")


def fsdp_refused(document: Document, job: Job) -> Iterator[Hit]:
    """FSDP settings that stop the run."""
    if distributed_type(document) != "FSDP":
        return
    version = str(value_of(document, SECTION, "fsdp_version", 1))
    on = {
        name: _is_true(document, name)
        for name in (
            "cpu_ram_efficient_loading",
            "sync_module_states",
            "activation_checkpointing",
            "activation_checkpointing_offload",
        )
    }
    cases = (
        (
            "fsdp_sync_module_states",
            not value_of(document, SECTION, "fsdp_sync_module_states", True)
            and on["cpu_ram_efficient_loading"] is not False,
            "fsdp_cpu_ram_efficient_loading, true unless it is switched off, needs fsdp_sync_module_states",
            "set fsdp_sync_module_states to true, or fsdp_cpu_ram_efficient_loading to false",
        ),
        (
            "fsdp_state_dict_type",
            version == "2"
            and str(value_of(document, SECTION, "fsdp_state_dict_type", "")).upper() == "LOCAL_STATE_DICT",
            "FSDP version 2 has no LOCAL_STATE_DICT",
            "use SHARDED_STATE_DICT or FULL_STATE_DICT",
        ),
        (
            "fsdp_activation_checkpointing_offload",
            on["activation_checkpointing_offload"] is True
            and (version != "2" or on["activation_checkpointing"] is not True),
            "fsdp_activation_checkpointing_offload needs fsdp_activation_checkpointing and version 2",
            "set both, or remove it",
        ),
    )
    for name, refused, message, fix in cases:
        member = member_of(document, SECTION, name)
        if refused and member is not None:
            yield Hit(
                at=member,
                path=f"{SECTION}.{member.name}",
                message=message,
                effect="Accelerate refuses to start",
                fix=fix,
            )


def _is_true(document: Document, name: str) -> bool | None:
    value = value_of(document, SECTION, f"fsdp_{name}")
    return None if value is None else str(value).lower() in ("true", "1", "yes", "on")


def wrapped_layers(document: Document, job: Job) -> Iterator[Hit]:
    """Layer classes as a YAML list, and wrap settings of another policy."""
    if distributed_type(document) != "FSDP":
        return
    policy = str(value_of(document, SECTION, "fsdp_auto_wrap_policy", "NO_WRAP")).upper()
    member = member_of(document, SECTION, "fsdp_transformer_layer_cls_to_wrap")
    if member is not None and isinstance(member.node.data, list):
        names = ",".join(str(name) for name in member.node.data)
        yield Hit(
            at=member.node,
            path=f"{SECTION}.{member.name}",
            message="the layer classes are a list; they must be text with commas",
            effect="Accelerate looks for classes named like pieces of the printed list and stops",
            fix=f"write {names}",
            severity="error",
        )
    for name, wanted in (
        ("fsdp_transformer_layer_cls_to_wrap", "TRANSFORMER_BASED_WRAP"),
        ("fsdp_min_num_params", "SIZE_BASED_WRAP"),
    ):
        member = member_of(document, SECTION, name)
        if member is not None and member.node.data not in (None, "", 0) and policy != wanted:
            yield Hit(
                at=member,
                path=f"{SECTION}.{member.name}",
                message=f"{member.name} acts with fsdp_auto_wrap_policy {wanted}; this file has {policy}",
                effect="it does nothing",
                fix=f"set fsdp_auto_wrap_policy to {wanted}, or remove it",
            )


RULES = (
    Rule(
        code="AC307",
        name="other-fsdp-version",
        severity="warning",
        reads="accelerate",
        check=fsdp_pairs,
        summary="An FSDP setting of the other version.",
    ),
    Rule(
        code="AC308",
        name="refused-fsdp-setting",
        severity="error",
        reads="accelerate",
        check=fsdp_refused,
        summary="FSDP settings that stop the run.",
    ),
    Rule(
        code="AC309",
        name="wrapped-layers",
        severity="warning",
        reads="accelerate",
        check=wrapped_layers,
        url="https://github.com/huggingface/accelerate/issues/1943",
        summary="Layer classes as a list, or wrap settings of another policy.",
    ),
)
