"""Rules for arguments that the Trainer no longer has, and for the steps it holds against a DeepSpeed schedule."""

from __future__ import annotations

from collections.abc import Iterator

from gradwire.lint.edits import replace_value
from gradwire.lint.rule import Hit, Rule, shown
from gradwire.targets.deepspeed_readings import number
from gradwire.targets.filling import fill
from gradwire.targets.job import Job
from gradwire.targets.tree import Document
from gradwire.targets.values import written_number

REMOVED: dict[str, str | None] = {
    "adafactor": "optim",
    "dispatch_batches": "accelerator_config",
    "evaluation_strategy": "eval_strategy",
    "fp16_backend": None,
    "fp16_opt_level": None,
    "fsdp_min_num_params": "fsdp_config",
    "fsdp_transformer_layer_cls_to_wrap": "fsdp_config",
    "group_by_length": "train_sampling_strategy",
    "half_precision_backend": None,
    "include_inputs_for_metrics": "include_for_metrics",
    "include_tokens_per_second": "include_num_input_tokens_seen",
    "jit_mode_eval": None,
    "mp_parameters": None,
    "no_cuda": "use_cpu",
    "overwrite_output_dir": None,
    "past_index": None,
    "per_gpu_eval_batch_size": "per_device_eval_batch_size",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "push_to_hub_model_id": "hub_model_id",
    "push_to_hub_token": "hub_token",
    "ray_scope": None,
    "save_safetensors": None,
    "sharded_ddp": "fsdp",
    "split_batches": "accelerator_config",
    "torchdynamo": "torch_compile_backend",
    "tpu_metrics_debug": "debug",
    "use_ipex": None,
    "use_mps_device": None,
    "warmup_ratio": "warmup_steps",
    "xpu_backend": "ddp_backend",
}
"""Arguments that transformers 5.24 refuses, with the argument that took over; None: nothing did."""


def removed_arguments(document: Document, job: Job) -> Iterator[Hit]:
    """Arguments of older versions of transformers."""
    for name, instead in REMOVED.items():
        member = document.member(name)
        if member is None:
            continue
        share = ", which takes a share below 1 too" if name == "warmup_ratio" else ""
        yield Hit(
            at=member,
            path=name,
            message=f"transformers 5 has no argument {name}",
            effect="TrainingArguments stops: unexpected keyword argument",
            fix=f"use {instead}{share}" if instead else "remove it",
        )


def schedule_lengths(document: Document, job: Job) -> Iterator[Hit]:
    """Steps of the DeepSpeed schedule that are not those of the Trainer's run."""
    for name, argument in (("warmup_num_steps", "warmup_steps"), ("total_num_steps", "max_steps")):
        path = f"scheduler.params.{name}"
        member, written = document.member(path), number(document.value(path))
        filled = fill(path, job, "trainer", stage=0)
        if member is None or written is None or filled is None or written == filled.value:
            continue
        known = filled.origin == "filled"
        yield Hit(
            at=member.node,
            path=path,
            message=f"{name} is {shown(member.node.data)}, and "
            + (
                f"the Trainer makes {shown(filled.value)} of {argument}"
                if known
                else "the Trainer counts its own steps"
            ),
            effect="the Trainer stops: values that mismatch TrainingArguments"
            + ("" if known else ", unless the run comes to the same number"),
            fix='write "auto"',
            severity=None if known else "warning",
        )


def gloo_without_use_cpu(document: Document, job: Job) -> Iterator[Hit]:
    """A backend for CPU processes, which the Trainer does not take for processes of one job."""
    member = document.member("ddp_backend")
    if member is None or member.node.data != "gloo" or document.value("use_cpu") is True or document.has("deepspeed"):
        return
    yield Hit(
        at=member,
        path="ddp_backend",
        message="ddp_backend is gloo, and use_cpu is not true",
        effect="on a machine without a GPU the processes share out the data but not the gradients: each trains another "
        "model, and exits 0",
        fix='add "use_cpu": true, or remove it where there are GPUs',
    )


_NUMBERS = (
    *("learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm"),
    *("num_train_epochs", "max_steps", "warmup_steps", "label_smoothing_factor"),
    *("logging_steps", "save_steps", "eval_steps"),
)


def numbers_as_text(document: Document, job: Job) -> Iterator[Hit]:
    """1e-5 and its like, which YAML 1.1 reads as text."""
    for name in _NUMBERS if document.syntax == "yaml" else ():
        member = document.member(name)
        text = member.node.data if member is not None and not member.node.quoted else None
        written = written_number(text) if isinstance(text, str) else None
        if member is not None and written is not None:
            yield Hit(
                at=member.node,
                path=name,
                message=f"{name}: {text} is text in YAML 1.1, not a number",
                effect="transformers reads the file with YAML 1.1 and keeps the text, at which the run stops; a script "
                "that reads it with YAML 1.2 or OmegaConf gets the number",
                fix=f"write {written}",
                edits=replace_value(member, written),
            )


RULES = (
    Rule(
        code="TR207",
        name="number-as-text",
        severity="warning",
        reads="trainer",
        check=numbers_as_text,
        summary="A number in a YAML of arguments that is text: 1e-5 for 1.0e-5.",
    ),
    Rule(
        code="TR206",
        name="gloo-without-use-cpu",
        severity="warning",
        reads="trainer",
        check=gloo_without_use_cpu,
        summary="ddp_backend gloo without use_cpu.",
    ),
    Rule(
        code="TR105",
        name="length-of-the-schedule",
        severity="error",
        reads="deepspeed",
        needs=("trainer",),
        check=schedule_lengths,
        url="https://huggingface.co/docs/transformers/deepspeed#deepspeed-and-trainer-parameters",
        summary="A schedule whose steps are not those of the Trainer.",
    ),
    Rule(
        code="TR205",
        name="removed-argument",
        severity="error",
        reads="trainer",
        check=removed_arguments,
        summary="An argument that the Trainer no longer has.",
    ),
)
