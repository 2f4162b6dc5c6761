"""Rules that rest on what is known beside the files: the model's class, and the program that runs the loop."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gradwire.lint.edits import remove_member
from gradwire.lint.rule import Hit, Rule
from gradwire.lint.rules.accelerate_launch import distributed_type
from gradwire.targets.job import Job
from gradwire.targets.schema import member_of
from gradwire.targets.tree import Document

# What transformers puts behind a family's name in the classes of its models.
_HEAD = re.compile(r"(For[A-Z]\w*|LMHead\w*|DoubleHeads\w*|PreTrainedModel|EncoderModel|Model)$")


def layers_of_another_model(document: Document, job: Job) -> Iterator[Hit]:
    """Layer classes that are not named after the model: the classes of one family begin with its name."""
    member, model = member_of(document, "fsdp_config", "fsdp_transformer_layer_cls_to_wrap"), job.facts.model_class
    if member is None or model is None or distributed_type(document) != "FSDP":
        return
    family = _HEAD.sub("", model)
    for name in str(member.node.data or "").split(","):
        if family and name.strip() and not name.strip().lower().startswith(family.lower()):
            yield Hit(
                at=member.node,
                path=f"fsdp_config.{member.name}",
                message=f"{name.strip()} is not named like a layer of {model}",
                effect="where the model has no class of that name, Accelerate stops: it could not find the layer class",
                fix=f"name a class that begins with {family} (print the model to see its layers), or leave the key "
                "out for the classes that the model itself names",
            )


def accumulation_under_lightning(document: Document, job: Job) -> Iterator[Hit]:
    """gradient_accumulation_steps in a file for Lightning, which sets it itself."""
    member = document.member("gradient_accumulation_steps")
    if member is not None and job.facts.program == "lightning":
        yield Hit(
            at=member,
            path="gradient_accumulation_steps",
            message="gradient_accumulation_steps in a file for Lightning",
            effect="Lightning refuses to start: it sets the key from accumulate_grad_batches",
            fix="remove it, and give Trainer(accumulate_grad_batches=...) the value",
            edits=remove_member(document, member),
        )


RULES = (
    Rule(
        code="AC311",
        name="layers-of-another-model",
        severity="warning",
        reads="accelerate",
        check=layers_of_another_model,
        url="https://github.com/huggingface/accelerate/issues/1943",
        summary="Layer classes to wrap that are not named after the model.",
    ),
    Rule(
        code="DS607",
        name="accumulation-under-lightning",
        severity="error",
        reads="deepspeed",
        check=accumulation_under_lightning,
        url="https://github.com/Lightning-AI/pytorch-lightning/issues/19891",
        summary="gradient_accumulation_steps in a file for Lightning, which refuses it.",
    ),
)
