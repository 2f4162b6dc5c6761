"""Rules for keys of a DeepSpeed file that need each other, or that DeepSpeed does not take together."""

from __future__ import annotations

from collections.abc import Iterator

from gradwire.lint.rule import Hit, Rule
from gradwire.targets.deepspeed_readings import is_off, is_on, precision_section, zero_stage
from gradwire.targets.job import Job
from gradwire.targets.tree import Document


def partial_offload(document: Document, job: Job) -> Iterator[Hit]:
    """A share of optimizer offload below stage 3."""
    member = document.member("zero_optimization.offload_optimizer.ratio")
    ratio = document.value("zero_optimization.offload_optimizer.ratio")
    if member is not None and isinstance(ratio, int | float) and 0 <= ratio < 1 and zero_stage(document) != 3:
        yield Hit(
            at=member.node,
            path="zero_optimization.offload_optimizer.ratio",
            message=f"a share of {ratio} is offloaded at stage 3 only",
            effect="DeepSpeed refuses to start",
            fix="set ratio to 1.0, or stage to 3",
        )


def incomplete_sections(document: Document, job: Job) -> Iterator[Hit]:
    """Sections that are switched on without the key that they need."""
    sampling = "data_efficiency.data_sampling"
    for section, needed in (
        (f"{sampling}.curriculum_learning", "curriculum_metrics"),
        (f"{sampling}.dynamic_batching", "max_tokens"),
    ):
        member = document.member(f"{section}.enabled")
        if member is not None and member.node.data and not document.has(f"{section}.{needed}"):
            yield Hit(
                at=member,
                path=f"{section}.enabled",
                message=f"{section.rsplit('.', 1)[1]} without {needed}",
                effect="DeepSpeed refuses to start",
                fix=f"add {needed}, or switch it off",
            )


def refused_together(document: Document, job: Job) -> Iterator[Hit]:
    """Settings that DeepSpeed refuses at the stage or beside the setting that is written."""
    stage = zero_stage(document)
    zero = document.mapping("zero_optimization")
    for path, refused, message, effect, fix in _combinations(document, stage, zero):
        member = document.member(path)
        if refused and member is not None:
            yield Hit(at=member.node, path=path, message=message, effect=effect, fix=fix)


def _combinations(document: Document, stage: int, zero: dict[str, object]) -> Iterator[tuple[str, bool, str, str, str]]:
    scatters = stage in (2, 3) and zero.get("reduce_scatter", True) is not False
    engine, parser = "DeepSpeed reads the file and fails when the engine starts", "DeepSpeed refuses to start"
    yield (
        "prescale_gradients",
        scatters and is_on(document, "prescale_gradients"),
        f"prescale_gradients does not go with reduce_scatter at stage {stage}",
        engine,
        "remove it, or set zero_optimization.reduce_scatter to false",
    )
    factor = document.value("gradient_predivide_factor", 1.0)
    yield (
        "gradient_predivide_factor",
        scatters and isinstance(factor, int | float) and factor not in (0, 1),
        f"gradient_predivide_factor other than 1.0 does not go with reduce_scatter at stage {stage}",
        engine,
        "remove it, or set zero_optimization.reduce_scatter to false",
    )
    summed = str(document.value("gradient_allreduce_op", "")).lower() == "sum"
    yield (
        "gradient_allreduce_op",
        summed and (stage == 3 or zero.get("zenflow") is not None or is_on(document, "compile.deepcompile")),
        "gradients are not summed at stage 3, with zenflow or with deepcompile",
        parser,
        "use mean",
    )
    yield (
        "zero_optimization.compute_grad_norm",
        is_off(document, "zero_optimization.compute_grad_norm") and stage not in (1, 2),
        "compute_grad_norm false is for stages 1 and 2",
        parser,
        "remove it",
    )
    yield (
        "zero_optimization.legacy_stage1",
        is_on(document, "zero_optimization.legacy_stage1") and stage > 0,
        "the first implementation of stage 1 is gone since DeepSpeed 0.5.9",
        engine,
        "remove it",
    )
    yield from _master_weights(document, stage, parser)
    yield from _data_types(document, stage, engine)


def _master_weights(document: Document, stage: int, parser: str) -> Iterator[tuple[str, bool, str, str, str]]:
    bf16 = precision_section(document)
    for path in (
        "fp16.fp16_master_weights_and_grads",
        f"{bf16}.bf16_master_weights_and_grads",
        f"{bf16}.bf16_optimizer_states",
    ):
        yield (
            path,
            is_on(document, path) and stage == 0,
            f"{path.split('.')[1]} needs ZeRO stage 1, 2 or 3",
            parser,
            "set zero_optimization.stage, or remove it",
        )
    yield (
        f"{bf16}.bf16_optimizer_states",
        is_on(document, f"{bf16}.bf16_optimizer_states")
        and stage > 0
        and not is_on(document, f"{bf16}.bf16_master_weights_and_grads"),
        "bf16_optimizer_states needs bf16_master_weights_and_grads",
        parser,
        "switch both on, or neither",
    )


_DTYPES = {
    "fp32": "fp32",
    "float32": "fp32",
    "float": "fp32",
    "fp16": "fp16",
    "float16": "fp16",
    "half": "fp16",
    "bf16": "bf16",
    "bfloat16": "bf16",
}


def _data_types(document: Document, stage: int, engine: str) -> Iterator[tuple[str, bool, str, str, str]]:
    bf16 = precision_section(document)
    if any(document.value(f"{section}.enabled") == "auto" for section in ("fp16", bf16)):
        return
    model = "fp16" if is_on(document, "fp16.enabled") else "bf16" if is_on(document, f"{bf16}.enabled") else "fp32"
    for name, refused in (("grad_accum_dtype", stage == 0), ("param_dtype", True)):
        written = _DTYPES.get(str(document.value(f"data_types.{name}", "")).removeprefix("torch."))
        yield (
            f"data_types.{name}",
            refused and written is not None and written != model,
            f"{name} {written} does not go with a model in {model}"
            + ("" if name == "param_dtype" else " without ZeRO"),
            engine,
            f"use {model}, or remove it",
        )


RULES = (
    Rule(
        code="DS210",
        name="partial-offload",
        severity="error",
        reads="deepspeed",
        check=partial_offload,
        summary="A share of optimizer offload below stage 3.",
    ),
    Rule(
        code="DS211",
        name="refused-together",
        severity="error",
        reads="deepspeed",
        check=refused_together,
        summary="Two settings that DeepSpeed does not take together.",
    ),
    Rule(
        code="DS212",
        name="incomplete-section",
        severity="error",
        reads="deepspeed",
        check=incomplete_sections,
        summary="A section that is switched on without the key that it needs.",
    ),
)
