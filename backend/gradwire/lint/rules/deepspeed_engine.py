"""Rules for files that DeepSpeed reads and whose engine then stops, or works without what they say."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from gradwire.lint.rule import Hit, Rule, shown
from gradwire.targets.deepspeed_activity import OF_BUCKETS
from gradwire.targets.deepspeed_parameters import optimizer_type
from gradwire.targets.deepspeed_readings import (
    is_off,
    is_on,
    number,
    offload_device,
    precision_section,
    uses_bf16_optimizer,
    whole,
    zero_stage,
)
from gradwire.targets.job import Job
from gradwire.targets.schema import visit
from gradwire.targets.tree import Document

STARTS = "DeepSpeed reads the file and fails when the engine starts"
ZENFLOW = "zero_optimization.zenflow"
Refusal = tuple[str, bool, str, str]
"""Where, whether the engine stops, why, and the way out."""


def refused_at_start(document: Document, job: Job) -> Iterator[Hit]:
    """Settings that the engine refuses beside others."""
    for path, refused, message, fix in _refusals(document, zero_stage(document)):
        member = document.member(path)
        if refused and member is not None:
            yield Hit(at=member.node, path=path, message=message, effect=STARTS, fix=fix)


def _refusals(document: Document, stage: int) -> Iterator[Refusal]:
    offloads = stage > 0 and offload_device(document, "offload_optimizer") != "none"
    overlap = "zero_optimization.overlap_comm"
    overlaps = is_on(document, overlap) or (stage == 3 and not is_off(document, overlap))
    scale = number(document.value("fp16.loss_scale"))
    yield (
        "fp16.loss_scale",
        optimizer_type(document) == "lamb" and scale not in (None, 0),
        f"Lamb needs a dynamic loss scale, and loss_scale is {shown(scale)}",
        "write 0, also where fp16 is off, or use another optimizer",
    )
    yield (
        "managed_gradient_accumulation",
        is_off(document, "managed_gradient_accumulation") and overlaps and stage < 2,
        "managed_gradient_accumulation false goes with overlap_comm at stages 2 and 3 only; this file is at stage "
        f"{stage}",
        "set zero_optimization.overlap_comm to false, or remove it",
    )
    yield (
        "optimizer.type",
        optimizer_type(document) == "muon" and stage == 3 and not is_off(document, "zero_optimization.reduce_scatter"),
        "Muon does not go with reduce_scatter, which is on unless it is switched off, at stage 3",
        "set zero_optimization.reduce_scatter to false",
    )
    yield (
        "zero_optimization.zero_quantized_weights",
        stage == 3
        and is_on(document, "zero_optimization.zero_quantized_weights")
        and is_on(document, "torch_autocast.enabled"),
        "zero_quantized_weights does not go with torch_autocast",
        "keep one of them",
    )
    yield from _without_norm(document, stage, offloads=offloads)
    yield from _on_cpu_adam(document, stage, offloads=offloads)
    yield from _zenflow(document, stage, offloads=offloads, overlaps=overlaps)


def _without_norm(document: Document, stage: int, *, offloads: bool) -> Iterator[Refusal]:
    path = "zero_optimization.compute_grad_norm"
    off = stage in (1, 2) and is_off(document, path)
    limit = document.value("gradient_clipping", 1.0)
    yield (
        path,
        off and (number(limit) or 0) > 0,
        f"compute_grad_norm false needs gradient_clipping 0, which is {shown(limit)}"
        + ("" if document.has("gradient_clipping") else " where it is not written"),
        'add "gradient_clipping": 0, or remove it',
    )
    yield (
        path,
        off and (offloads or document.value(ZENFLOW) is not None or uses_bf16_optimizer(document)),
        "compute_grad_norm false does not go with an offloaded optimizer, with zenflow, or, at stage 1, with bf16 "
        "whose gradients are accumulated in fp32",
        "remove it",
    )


def _on_cpu_adam(document: Document, stage: int, *, offloads: bool) -> Iterator[Refusal]:
    """What only Adam on the CPU does; without an optimizer section the script may bring it."""
    params = document.mapping("optimizer.params")
    may_be = optimizer_type(document) in ("adam", "adamw", None) and not params.get("torch_adam")
    on_cpu = offloads and may_be
    fp16, bf16 = "fp16.fp16_master_weights_and_grads", f"{precision_section(document)}.bf16_master_weights_and_grads"
    in_16_bits = is_on(document, f"{precision_section(document)}.bf16_optimizer_states")
    for path, needs in ((fp16, True), (bf16, offloads or not in_16_bits)):
        name = path.rpartition(".")[2]
        yield (
            path,
            stage > 0 and is_on(document, path) and needs and not on_cpu and not uses_bf16_optimizer(document),
            f"{name} needs the optimizer offloaded to the CPU, and DeepSpeed's own Adam"
            + ("" if path == fp16 or in_16_bits else ", as long as the optimizer's states are in fp32"),
            'add "offload_optimizer": {"device": "cpu"} without torch_adam'
            + ("" if path == fp16 or offloads else ", or bf16_optimizer_states")
            + ", or remove it",
        )
    ratio = number(document.value("zero_optimization.offload_optimizer.ratio"))
    yield (
        "zero_optimization.offload_optimizer.ratio",
        stage == 3 and offloads and ratio is not None and 0 <= ratio < 1 and not may_be,
        f"a share of {shown(ratio)} needs DeepSpeed's own Adam",
        "use Adam or AdamW without torch_adam, or set ratio to 1.0",
    )


def _zenflow(document: Document, stage: int, *, offloads: bool, overlaps: bool) -> Iterator[Refusal]:
    if document.value(ZENFLOW) is None or stage == 0:
        return
    values = document.mapping(ZENFLOW)
    strategy = values.get("select_strategy", "auto")
    select, update = (number(values.get(f"{name}_interval")) for name in ("select", "update"))
    yield ZENFLOW, stage < 3 and not offloads, "zenflow needs an offloaded optimizer", "add offload_optimizer"
    yield (
        f"{ZENFLOW}.offload",
        is_on(document, f"{ZENFLOW}.offload") and not overlaps,
        "zenflow.offload needs overlap_comm",
        "set zero_optimization.overlap_comm to true",
    )
    yield (
        f"{ZENFLOW}.select_interval",
        strategy == "auto" and select is not None,
        'select_interval is a number, and select_strategy "auto" sets its own',
        "remove it, or set select_strategy to step or epoch",
    )
    yield (
        f"{ZENFLOW}.select_strategy",
        strategy != "auto" and select is None,
        f"select_strategy {strategy} needs a number as select_interval",
        "add select_interval",
    )
    yield (
        f"{ZENFLOW}.update_interval",
        strategy == "step" and select is not None and update is not None and 0 < select < update,
        f"update_interval {shown(update)} is longer than select_interval {shown(select)}",
        "write a smaller one",
    )


def groups_of_ranks(document: Document, job: Job) -> Iterator[Hit]:
    """Groups of tensor or sequence parallelism that the world does not hold."""
    world = job.num_processes
    if world is None:
        return
    for path, others in (("tensor_parallel.autotp_size", ()), ("sequence_parallel_size", ("data_parallel_size",))):
        member = document.member(path)
        sizes = [whole(document.value(each)) for each in (path, *others) if document.has(each)]
        if member is None or None in sizes or (others and len(sizes) < 2):
            continue
        size = prod(each for each in sizes if each is not None)
        if size > world or (not others and size > 1 and world % size):
            yield Hit(
                at=member.node,
                path=path,
                message=f"groups of {size} ranks do not divide {world} processes"
                if not others
                else f"{path} x {others[0]} is {size}, and there are {world} processes",
                effect=STARTS,
                fix=f"use a divisor of {world}, usually within the devices of one machine",
            )


def compiled_on_call(document: Document, job: Job) -> Iterator[Hit]:
    """DeepCompile, which waits for a call."""
    member = document.member("compile.deepcompile")
    if member is not None and is_on(document, "compile.deepcompile"):
        yield Hit(
            at=member,
            path="compile.deepcompile",
            message="deepcompile takes effect when the script calls engine.compile()",
            effect="without the call nothing is compiled",
            fix="call engine.compile() after deepspeed.initialize",
        )


def keys_of_another_optimizer(document: Document, job: Job) -> Iterator[Hit]:
    """ZeRO keys beside bf16 at stage 1 with gradients in fp32, which another class of DeepSpeed runs."""
    if not uses_bf16_optimizer(document):
        return
    for each in visit(document):
        value = each.member.node.data
        if each.section_path != "zero_optimization" or each.member.name not in OF_BUCKETS:
            continue
        if value in (each.says.get("default"), None, False):
            continue
        yield Hit(
            at=each.member,
            path=each.path,
            message=f"{each.member.name} does not act at stage 1 with bf16 and gradients accumulated in fp32",
            effect="DeepSpeed runs this with its BF16_Optimizer, which reduces all gradients after the backward pass "
            f"and never reads {shown(value)}",
            fix="remove it, or set stage to 2",
        )


RULES = (
    Rule(
        code="DS213",
        name="refused-at-start",
        severity="error",
        reads="deepspeed",
        check=refused_at_start,
        summary="Settings that DeepSpeed's engine refuses beside others.",
    ),
    Rule(
        code="DS214",
        name="key-of-another-optimizer",
        severity="warning",
        reads="deepspeed",
        check=keys_of_another_optimizer,
        summary="A ZeRO key that does not act with bf16 and gradients in fp32 at stage 1.",
    ),
    Rule(
        code="DS215",
        name="groups-of-ranks",
        severity="error",
        reads="deepspeed",
        check=groups_of_ranks,
        summary="Groups of tensor or sequence parallelism that the world does not hold.",
    ),
    Rule(
        code="DS216",
        name="deepcompile-on-call",
        severity="note",
        reads="deepspeed",
        check=compiled_on_call,
        summary="DeepCompile, which acts only where the script calls engine.compile().",
    ),
)
