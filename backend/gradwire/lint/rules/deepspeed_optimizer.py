"""Rules for the optimizer section of a DeepSpeed file, and for gradient clipping."""

from __future__ import annotations

from collections.abc import Iterator

from gradwire.lint.rule import Hit, Rule, shown
from gradwire.targets.deepspeed_parameters import accepted_parameters, optimizer_section, optimizer_type
from gradwire.targets.deepspeed_readings import DEEPSPEED_CONFIG_URL, is_off, is_on, number, zero_stage
from gradwire.targets.job import Job
from gradwire.targets.schema import as_version
from gradwire.targets.suggest import near_miss
from gradwire.targets.tree import Document

ADAM_URL = "https://github.com/deepspeedai/DeepSpeed/issues/668"
PARAMS = "optimizer.params"


def unknown_optimizer(document: Document, job: Job) -> Iterator[Hit]:
    """An optimizer that DeepSpeed does not have."""
    name, member = optimizer_type(document), document.member("optimizer.type")
    types = optimizer_section()["x-types"]
    if name is None or member is None or name in types["own"] or name in types["torch"]:
        return
    removed = types["removed"].get(name.lower())
    if removed is not None and as_version(job.versions.deepspeed) < as_version(removed):
        return
    near = near_miss(name, [*(["Adam", "AdamW", "Adagrad", "Lamb", "Lion", "Muon"]), *types["torch"]])
    yield Hit(
        at=member.node,
        path="optimizer.type",
        message=f"{name} was removed in DeepSpeed {removed}" if removed else f"DeepSpeed has no optimizer {name}",
        effect="the file is read, and deepspeed.initialize then fails: not a supported DeepSpeed Optimizer",
        fix="use AdamW or Lamb"
        if removed
        else f"did you mean {near}?"
        if near
        else "use AdamW, or a name of torch.optim",
        url="https://github.com/deepspeedai/DeepSpeed/issues/8489" if removed else None,
    )


def missing_type(document: Document, job: Job) -> Iterator[Hit]:
    """An optimizer or scheduler section without a type."""
    for section in ("optimizer", "scheduler"):
        member = document.member(section)
        if member is not None and isinstance(member.node.data, dict) and not document.has(f"{section}.type"):
            yield Hit(
                at=member,
                path=section,
                message=f"{section} has no type",
                effect="DeepSpeed ignores the whole section",
                fix=f"add type, for example {'AdamW' if section == 'optimizer' else 'WarmupDecayLR'}",
            )


def max_grad_norm(document: Document, job: Job) -> Iterator[Hit]:
    """Clipping among the optimizer's parameters."""
    member = document.member(f"{PARAMS}.max_grad_norm")
    if member is not None:
        yield Hit(
            at=member,
            path=f"{PARAMS}.max_grad_norm",
            message="max_grad_norm is not a parameter of the optimizer",
            effect="the file is read, and deepspeed.initialize then fails",
            fix="remove it and set gradient_clipping at the top level"
            + (f" to {shown(member.node.data)}" if not document.has("gradient_clipping") else ""),
        )


def unknown_parameters(document: Document, job: Job) -> Iterator[Hit]:
    """Parameters that the optimizer's constructor does not take."""
    accepted, params = accepted_parameters(document, "optimizer"), document.member(PARAMS)
    if accepted is None:
        return
    for key, member in ((params.node.members if params else None) or {}).items():
        if key in accepted or key == "max_grad_norm":
            continue
        near = near_miss(key, accepted)
        yield Hit(
            at=member,
            path=f"{PARAMS}.{key}",
            message=f"{document.value('optimizer.type')} takes no parameter {key}"
            + (f" (did you mean {near}?)" if near else ""),
            effect="the file is read, and deepspeed.initialize then fails: unexpected keyword argument",
            fix=f"write {near}" if near else f"remove it; it takes {', '.join(accepted)}",
        )


def refused_parameters(document: Document, job: Job) -> Iterator[Hit]:
    """AMSGrad, which DeepSpeed's own optimizers do not have, on whichever device."""
    own = optimizer_type(document) in ("adam", "adamw", "lamb") and not is_on(document, f"{PARAMS}.torch_adam")
    member = document.member(f"{PARAMS}.amsgrad")
    if member is not None and own and is_on(document, f"{PARAMS}.amsgrad"):
        yield Hit(
            at=member,
            path=f"{PARAMS}.amsgrad",
            message="DeepSpeed's own optimizers have no AMSGrad",
            effect="the file is read, and deepspeed.initialize then fails",
            fix="set it to false" + ("" if optimizer_type(document) == "lamb" else ', or add "torch_adam": true'),
        )


def untested_with_zero(document: Document, job: Job) -> Iterator[Hit]:
    """An optimizer that ZeRO wraps only when told to."""
    name, member = optimizer_type(document), document.member("optimizer.type")
    types = optimizer_section()["x-types"]
    if name is None or member is None or zero_stage(document) == 0 or name in types["tested-with-zero"]:
        return
    if (name in types["own"] or name in types["torch"]) and not document.value("zero_allow_untested_optimizer"):
        yield Hit(
            at=member.node,
            path="optimizer.type",
            message=f"ZeRO was not tested with {document.value('optimizer.type')}",
            effect="the file is read, and deepspeed.initialize then fails: untested ZeRO optimizer",
            fix='add "zero_allow_untested_optimizer": true at the top level',
        )


def adam_means_adamw(document: Document, job: Job) -> Iterator[Hit]:
    """Adam with a weight decay, which is AdamW."""
    member, decay = document.member("optimizer.type"), document.value(f"{PARAMS}.weight_decay", _hidden_decay(document))
    if member is None or optimizer_type(document) != "adam" or document.has(f"{PARAMS}.adam_w_mode"):
        return
    if decay == "auto" or (number(decay) or 0) > 0:
        yield Hit(
            at=member.node,
            path="optimizer.type",
            message='"Adam" is AdamW in DeepSpeed',
            effect=f"the weight decay {shown(decay)} is decoupled from the gradient",
            fix='write "AdamW" to say so, or add "adam_w_mode": false for Adam with L2 regularisation',
        )


def _hidden_decay(document: Document) -> float:
    """The weight decay of an Adam that does not write one: that of torch.optim.AdamW with torch_adam, else none."""
    decouples = optimizer_type(document) == "adamw" or not is_off(document, f"{PARAMS}.adam_w_mode")
    return 0.01 if decouples and is_on(document, f"{PARAMS}.torch_adam") else 0


def no_weight_decay(document: Document, job: Job) -> Iterator[Hit]:
    """AdamW without a weight decay, or the Adam of torch, which is AdamW."""
    member, decay = document.member("optimizer.type"), _hidden_decay(document)
    kind = optimizer_type(document)
    is_hidden = kind == "adamw" or (kind == "adam" and decay > 0)
    if member is not None and is_hidden and not document.has(f"{PARAMS}.weight_decay"):
        yield Hit(
            at=member.node,
            path="optimizer.type",
            message=f"{document.value('optimizer.type')} without weight_decay",
            effect="torch_adam decays with the default of torch's AdamW, 0.01"
            if decay
            else "DeepSpeed decays with 0, where torch's AdamW decays with 0.01 and the Trainer's "
            "weight_decay does not arrive",
            fix=f"add weight_decay; {shown(decay)} is what you have now",
        )


def no_clipping_key(document: Document, job: Job) -> Iterator[Hit]:
    """A file that says nothing about clipping."""
    if not document.has("gradient_clipping"):
        yield Hit(
            at=document.root,
            path="gradient_clipping",
            message="gradient_clipping is not written",
            effect="DeepSpeed clips at 1.0; the Trainer's max_grad_norm does not arrive without the key",
            fix='add "gradient_clipping": 0 to not clip, the limit, or "auto" under the Trainer',
        )


def no_clipping_key_before(document: Document, job: Job) -> Iterator[Hit]:
    """The same before 0.19.3, where the default was not to clip."""
    if not document.has("gradient_clipping"):
        yield Hit(
            at=document.root,
            path="gradient_clipping",
            message="gradient_clipping is not written",
            effect="this DeepSpeed does not clip; from 0.19.3 on it clips at 1.0",
            fix='add "gradient_clipping": 0 to keep it so',
        )


def negative_clipping(document: Document, job: Job) -> Iterator[Hit]:
    """A negative limit."""
    member = document.member("gradient_clipping")
    if member is not None and (number(member.node.data) or 0) < 0:
        yield Hit(
            at=member.node,
            path="gradient_clipping",
            message=f"gradient_clipping is {shown(member.node.data)}",
            effect="DeepSpeed takes it and does not clip",
            fix="write 0 to not clip, or the limit",
        )


RULES = (
    Rule(
        code="DS401",
        name="unknown-optimizer",
        severity="error",
        reads="deepspeed",
        check=unknown_optimizer,
        summary="An optimizer that DeepSpeed does not have.",
    ),
    Rule(
        code="DS402",
        name="section-without-type",
        severity="error",
        reads="deepspeed",
        check=missing_type,
        summary="An optimizer or scheduler section without a type, which is ignored.",
    ),
    Rule(
        code="DS403",
        name="clipping-in-optimizer",
        severity="error",
        reads="deepspeed",
        check=max_grad_norm,
        url=DEEPSPEED_CONFIG_URL + "#gradient-clipping",
        summary="max_grad_norm among the optimizer's parameters.",
    ),
    Rule(
        code="DS404",
        name="unknown-optimizer-parameter",
        severity="error",
        reads="deepspeed",
        check=unknown_parameters,
        summary="A parameter that the optimizer does not take.",
    ),
    Rule(
        code="DS405",
        name="amsgrad",
        severity="error",
        reads="deepspeed",
        check=refused_parameters,
        summary="AMSGrad with an optimizer of DeepSpeed's own.",
    ),
    Rule(
        code="DS406",
        name="untested-with-zero",
        severity="error",
        reads="deepspeed",
        check=untested_with_zero,
        summary="An optimizer that ZeRO refuses without zero_allow_untested_optimizer.",
    ),
    Rule(
        code="DS407",
        name="adam-is-adamw",
        severity="warning",
        reads="deepspeed",
        check=adam_means_adamw,
        url=ADAM_URL,
        summary="Adam with a weight decay, which DeepSpeed decouples.",
    ),
    Rule(
        code="DS408",
        name="hidden-weight-decay",
        severity="warning",
        reads="deepspeed",
        check=no_weight_decay,
        url="https://github.com/deepspeedai/DeepSpeed/issues/5214",
        summary="AdamW without weight_decay, which is 0 here.",
    ),
    Rule(
        code="DS409",
        name="hidden-clipping",
        severity="warning",
        reads="deepspeed",
        check=no_clipping_key,
        since="0.19.3",
        url="https://github.com/huggingface/transformers/issues/37566",
        summary="No gradient_clipping, which means 1.0.",
    ),
    Rule(
        code="DS410",
        name="negative-clipping",
        severity="warning",
        reads="deepspeed",
        check=negative_clipping,
        summary="A negative gradient_clipping, which does not clip.",
    ),
    Rule(
        code="DS411",
        name="hidden-clipping-to-come",
        severity="note",
        reads="deepspeed",
        check=no_clipping_key_before,
        until="0.19.3",
        summary="No gradient_clipping, which means 1.0 from 0.19.3 on.",
    ),
)
