"""Rules for the DeepSpeed section of an Accelerate file."""

from __future__ import annotations

from collections.abc import Iterator

from gradwire.lint.rule import Hit, Rule, shown
from gradwire.lint.rules.accelerate_launch import distributed_type
from gradwire.targets.deepspeed_readings import number, whole
from gradwire.targets.job import Job
from gradwire.targets.schema import Visit, visit
from gradwire.targets.tree import Document

SECTION = "deepspeed_config"


def _is_deepspeed(document: Document) -> bool:
    return distributed_type(document) == "DEEPSPEED" and bool(document.mapping(SECTION) or not document.has(SECTION))


def config_file(document: Document) -> str | None:
    """The DeepSpeed JSON that the file names, or None."""
    name = document.value(f"{SECTION}.deepspeed_config_file")
    return name if isinstance(name, str) and name and name != "none" else None


def _known_keys(document: Document) -> list[Visit]:
    return [each for each in visit(document) if each.section_path == SECTION and each.spec is not None]


def two_deepspeed_sources(document: Document, job: Job) -> Iterator[Hit]:
    """Keys beside deepspeed_config_file that belong into it."""
    if not _is_deepspeed(document) or config_file(document) is None:
        return
    for each in _known_keys(document):
        if each.says.get("x-in-file") or each.member.name.endswith("_nvme_path"):
            yield Hit(
                at=each.member,
                path=each.path,
                message=f"{each.member.name} beside deepspeed_config_file",
                effect="Accelerate refuses to start: it would be ignored",
                fix="say it in the DeepSpeed JSON and remove it here",
            )
    member = document.member("mixed_precision")
    if member is not None and member.node.data is not None and job.facts.mixed_precision is None:
        yield Hit(
            at=member,
            path="mixed_precision",
            message="mixed_precision beside deepspeed_config_file",
            effect="Accelerate refuses to start: it would be ignored",
            fix="say it in the DeepSpeed JSON (bf16.enabled or fp16.enabled) and remove it here, or pass "
            "--mixed_precision",
        )


def unchecked_file(document: Document, job: Job) -> Iterator[Hit]:
    """A DeepSpeed JSON that is named and was not found, or that is no JSON."""
    name, member = config_file(document), document.member(f"{SECTION}.deepspeed_config_file")
    if not _is_deepspeed(document) or name is None or member is None:
        return
    if name.lower().endswith((".yaml", ".yml")):
        yield Hit(
            at=member.node,
            path=f"{SECTION}.deepspeed_config_file",
            message=f"{name} is named like YAML",
            effect="Accelerate reads the file as strict JSON, whatever its name, and refuses YAML",
            fix="make it a JSON",
            severity="warning",
        )
    elif job.deepspeed is None:
        yield Hit(
            at=member.node,
            path=f"{SECTION}.deepspeed_config_file",
            message=f"{name} was not found beside this file or in the working folder",
            effect="what it says was not checked",
            fix="lint it together with this file",
        )


def lost_nvme_path(document: Document, job: Job) -> Iterator[Hit]:
    """NVMe offload from the YAML, whose path is lost."""
    if not _is_deepspeed(document) or config_file(document) is not None:
        return
    for what in ("optimizer", "param"):
        member = document.member(f"{SECTION}.offload_{what}_nvme_path")
        device = str(document.value(f"{SECTION}.offload_{what}_device", "none")).lower()
        holder = member or document.member(f"{SECTION}.offload_{what}_device")
        if holder is None or (device != "nvme" and (member is None or member.node.data in (None, "none"))):
            continue
        yield Hit(
            at=holder,
            path=f"{SECTION}.{holder.name}",
            message="accelerate launch does not pass the NVMe path on",
            effect='the path becomes "none", a folder of that name in the working directory'
            if device == "nvme"
            else "it does nothing",
            fix="name a deepspeed_config_file with the nvme_path in it",
        )


def stage_three_only(document: Document, job: Job) -> Iterator[Hit]:
    """Stage-3 settings at another stage."""
    if not _is_deepspeed(document) or config_file(document) is not None:
        return
    stage = whole(document.value(f"{SECTION}.zero_stage", 2))
    if stage is None or stage == 3:
        return
    for each in _known_keys(document):
        value = each.member.node.data
        if 3 not in each.says.get("x-stages", ()) or str(value).lower() in ("none", "false", "no"):
            continue
        offload = each.member.name == "offload_param_device"
        yield Hit(
            at=each.member,
            path=each.path,
            message=f"{each.member.name} {shown(value)} acts at zero_stage 3; this file is at {stage}",
            effect="no parameter is offloaded"
            if offload
            else "Accelerate sets it to false"
            if each.member.name == "zero3_init_flag"
            else "it does nothing",
            fix="set zero_stage to 3, or remove it",
            severity="error" if offload else None,
            url="https://github.com/wenet-e2e/wenet/issues/2499" if offload else None,
        )


def clipping(document: Document, job: Job) -> Iterator[Hit]:
    """A limit of 0, which Accelerate leaves out, so that DeepSpeed's own 1.0 holds; and no limit at all."""
    if not _is_deepspeed(document) or config_file(document) is not None:
        return
    member = document.member(f"{SECTION}.gradient_clipping")
    if member is not None and number(member.node.data) == 0:
        yield Hit(
            at=member.node,
            path=f"{SECTION}.gradient_clipping",
            message=f"gradient_clipping {shown(member.node.data)} does not switch clipping off",
            effect="Accelerate leaves a 0 out of DeepSpeed's configuration, and DeepSpeed clips at its default, 1.0",
            fix='name a deepspeed_config_file with "gradient_clipping": 0',
        )
    elif member is None or member.node.data is None:
        yield Hit(
            at=document.member(SECTION) or document.member("distributed_type") or document.root,
            path=f"{SECTION}.gradient_clipping",
            message="gradient_clipping is not written",
            effect="DeepSpeed clips at 1.0",
            fix="add gradient_clipping; 1.0 is what you have now",
            severity="note",
        )


def hidden_stage(document: Document, job: Job) -> Iterator[Hit]:
    """A DeepSpeed job whose stage nobody wrote."""
    if _is_deepspeed(document) and config_file(document) is None and not document.has(f"{SECTION}.zero_stage"):
        yield Hit(
            at=document.member(SECTION) or document.member("distributed_type") or document.root,
            path=f"{SECTION}.zero_stage",
            message="zero_stage is not written",
            effect="Accelerate uses stage 2",
            fix="add zero_stage: 2 to say so",
        )


def path_as_section(document: Document, job: Job) -> Iterator[Hit]:
    """deepspeed_config as a path instead of a section."""
    member = document.member(SECTION)
    if member is not None and isinstance(member.node.data, str):
        deepspeed = distributed_type(document) == "DEEPSPEED"
        yield Hit(
            at=member.node,
            path=SECTION,
            message="deepspeed_config is a path; it must be a section",
            effect="accelerate launch ends in a traceback" if deepspeed else "the job runs plain DDP, without a word",
            fix=f"write deepspeed_config: {{deepspeed_config_file: {member.node.data}}}",
        )


RULES = (
    Rule(
        code="AC301",
        name="two-deepspeed-sources",
        severity="error",
        reads="accelerate",
        check=two_deepspeed_sources,
        url="https://huggingface.co/docs/accelerate/usage_guides/deepspeed",
        summary="Keys beside deepspeed_config_file that belong into it.",
    ),
    Rule(
        code="AC310",
        name="unchecked-file",
        severity="note",
        reads="accelerate",
        check=unchecked_file,
        summary="A DeepSpeed JSON that is named and was not checked.",
    ),
    Rule(
        code="AC302",
        name="lost-nvme-path",
        severity="error",
        reads="accelerate",
        check=lost_nvme_path,
        url="https://github.com/huggingface/accelerate/pull/1484",
        summary="NVMe offload from the YAML, whose path is lost.",
    ),
    Rule(
        code="AC303",
        name="stage-three-only",
        severity="warning",
        reads="accelerate",
        check=stage_three_only,
        summary="Stage-3 settings at another stage.",
    ),
    Rule(
        code="AC304",
        name="clipping-of-zero",
        severity="error",
        reads="accelerate",
        check=clipping,
        summary="gradient_clipping 0, which clips at 1.0, or no gradient_clipping.",
    ),
    Rule(
        code="AC305",
        name="hidden-stage",
        severity="note",
        reads="accelerate",
        check=hidden_stage,
        summary="A DeepSpeed job whose stage nobody wrote.",
    ),
    Rule(
        code="AC306",
        name="path-as-section",
        severity="error",
        reads="accelerate",
        check=path_as_section,
        summary="deepspeed_config as a path.",
    ),
)
