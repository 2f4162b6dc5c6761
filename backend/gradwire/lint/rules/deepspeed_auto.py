"""Rules for the word "auto": who replaces it, and what it becomes where nobody does."""

from __future__ import annotations

from collections.abc import Iterator

from gradwire.lint.rule import Hit, Rule, shown
from gradwire.targets.deepspeed_readings import zero_stage
from gradwire.targets.filling import PLUGIN_FILLED
from gradwire.targets.job import Job
from gradwire.targets.schema import Visit, visit
from gradwire.targets.tree import Document
from gradwire.targets.values import types_of

AUTO_URL = "https://huggingface.co/docs/transformers/deepspeed#deepspeed-and-trainer-parameters"
LEFTOVER_URL = "https://github.com/huggingface/transformers/issues/16495"


def _autos(document: Document) -> Iterator[Visit]:
    for each in visit(document):
        if each.member.node.data == "auto" and each.spec is not None and each.spec.get("x-auto") != "value":
            yield each


def _is_filled(document: Document, each: Visit) -> bool:
    if each.says.get("x-auto") != "filled":
        return False
    by_stage = each.member.name in ("stage3_prefetch_bucket_size", "stage3_param_persistence_threshold")
    return zero_stage(document) == 3 or not by_stage


def dropped_autos(document: Document, job: Job) -> Iterator[Hit]:
    """ "auto" in a pydantic section that nobody fills: the default takes its place."""
    for each in _autos(document):
        spec = each.says
        if each.section["x-unknown-keys"] != "refused" or _is_filled(document, each):
            continue
        becomes = shown(spec.get("default"))
        if each.member.name == "overlap_comm":
            becomes = shown(zero_stage(document) == 3)
        plugin = shown(PLUGIN_FILLED[each.path]) if each.path in PLUGIN_FILLED else None
        yield Hit(
            at=each.member.node,
            path=each.path,
            message=f'the Trainer does not fill "auto" for {each.member.name}'
            + (f" at stage {zero_stage(document)}" if spec.get("x-auto") == "filled" else ""),
            effect=f"DeepSpeed drops it and uses its default, {becomes}"
            + (f"; Accelerate and the Trainer put {plugin} there" if plugin else ""),
            fix=f"write the value; {becomes} is what you have now",
        )


def kept_autos(document: Document, job: Job) -> Iterator[Hit]:
    """ "auto" in a section that DeepSpeed reads by hand and nobody fills: the text itself arrives."""
    for each in _autos(document):
        if (
            each.section["x-unknown-keys"] == "refused"
            or _is_filled(document, each)
            or each.path in ("optimizer.type", "scheduler.type")
        ):
            continue
        kinds = types_of(each.says)
        switch = kinds == ["boolean"] and each.says.get("x-text") != "refused"
        text = "string" in kinds
        yield Hit(
            at=each.member.node,
            path=each.path,
            message=f'nothing fills "auto" for {each.member.name}',
            effect="DeepSpeed takes the text for true"
            if switch
            else 'DeepSpeed takes it for the name "auto"'
            if text
            else "the text arrives where DeepSpeed expects another value, and it fails",
            fix="write the value",
            severity="warning" if switch or text or each.member.name == "warmup_type" else None,
        )


def autos_to_fill(document: Document, job: Job) -> Iterator[Hit]:
    """ "auto" that the Trainer or Accelerate replaces; DeepSpeed alone does not."""
    filled = [each for each in _autos(document) if _is_filled(document, each)]
    needed = [each for each in filled if each.section["x-unknown-keys"] != "refused"]
    if needed:
        names = ", ".join(each.path for each in needed[:3]) + (
            f" and {len(needed) - 3} more" if len(needed) > 3 else ""
        )
        yield Hit(
            at=needed[0].member.node,
            path=needed[0].path,
            message=f'"auto" for {names}',
            effect="the Trainer fills them in from its arguments, Accelerate from what prepare() gets; "
            "DeepSpeed alone fails",
            fix="nothing under the Trainer or Accelerate; else write the values",
        )


def model_size_autos(document: Document, job: Job) -> Iterator[Hit]:
    """ "auto" that is worked out of the model's hidden size."""
    names = ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold")
    found = [each for each in _autos(document) if each.member.name in names and _is_filled(document, each)]
    if found:
        yield Hit(
            at=found[0].member.node,
            path=found[0].path,
            message='"auto" is worked out of the hidden_size of the model\'s config',
            effect="a model whose config has neither hidden_size nor hidden_sizes (some vision and "
            "encoder-decoder models) "
            "stops the run",
            fix="write the number of elements for such a model",
        )


RULES = (
    Rule(
        code="DS301",
        name="dropped-auto",
        severity="warning",
        reads="deepspeed",
        check=dropped_autos,
        url=LEFTOVER_URL,
        summary='An "auto" that nobody fills; DeepSpeed uses its default.',
    ),
    Rule(
        code="DS302",
        name="kept-auto",
        severity="error",
        reads="deepspeed",
        check=kept_autos,
        url=AUTO_URL,
        summary='An "auto" that nobody fills and that reaches DeepSpeed as text.',
    ),
    Rule(
        code="DS303",
        name="auto-to-fill",
        severity="note",
        reads="deepspeed",
        check=autos_to_fill,
        url=AUTO_URL,
        summary='"auto" that only the Trainer or Accelerate replaces.',
    ),
    Rule(
        code="DS304",
        name="auto-from-hidden-size",
        severity="note",
        reads="deepspeed",
        check=model_size_autos,
        url="https://github.com/huggingface/transformers/issues/22176",
        summary='"auto" that needs a hidden_size in the model\'s config.',
    ),
)
