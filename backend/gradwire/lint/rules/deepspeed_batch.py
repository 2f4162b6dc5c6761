"""Rules for the batch sizes of a DeepSpeed file: train = micro x accumulation x data-parallel size."""

from __future__ import annotations

from collections.abc import Iterator

from gradwire.lint.rule import Hit, Rule, shown
from gradwire.targets.deepspeed_readings import whole
from gradwire.targets.job import Job
from gradwire.targets.tree import Document

TRAIN, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
RANKS_URL = "https://github.com/deepspeedai/DeepSpeed/issues/3228"


def _written(document: Document) -> dict[str, int] | None:
    """The batch keys that hold whole numbers, or None where one holds something else ("auto" is absent)."""
    found: dict[str, int] = {}
    for name in (TRAIN, MICRO, STEPS):
        value = document.value(name)
        if value is None or value == "auto":
            continue
        size = whole(value)
        if size is None or size < 1:
            return None
        found[name] = size
    return found


def data_parallel_size(document: Document, job: Job) -> int | None:
    """Ranks that see different samples, where the world size is known."""
    world = job.num_processes
    if world is None:
        return None
    for path in ("sequence_parallel_size", "tensor_parallel.autotp_size"):
        split = whole(document.value(path, 1)) or 1
        if split > 1 and world % split == 0:
            world //= split
    return world


def no_batch_size(document: Document, job: Job) -> Iterator[Hit]:
    """A file that names neither the global batch nor the micro batch."""
    if document.value(TRAIN) is None and document.value(MICRO) is None:
        yield Hit(
            at=document.root,
            path=TRAIN,
            message=f"neither {TRAIN} nor {MICRO} is written",
            effect="DeepSpeed refuses to start, under the Trainer too: one of them is needed",
            fix=f'add "{MICRO}": the samples of one forward pass, or "auto" under the Trainer or Accelerate',
        )


def impossible_batch(document: Document, job: Job) -> Iterator[Hit]:
    """Batch sizes that no world size can make true."""
    sizes = _written(document)
    member = document.member(TRAIN)
    if sizes is None or member is None or TRAIN not in sizes or len(sizes) < 2:
        return
    per_rank = sizes.get(MICRO, 1) * sizes.get(STEPS, 1)
    if sizes[TRAIN] % per_rank:
        below, above = sizes[TRAIN] // per_rank * per_rank, -(-sizes[TRAIN] // per_rank) * per_rank
        yield Hit(
            at=member.node,
            path=TRAIN,
            message=f"{TRAIN} {sizes[TRAIN]} is no multiple of {_product(sizes)} = {per_rank}",
            effect="DeepSpeed refuses to start at every world size"
            + (", and the Trainer before it, whatever it fills in" if _has_auto(document) else ""),
            fix="write "
            + " or ".join(str(size) for size in dict.fromkeys((below, above)) if size > 0)
            + f", or leave {TRAIN} out",
        )


def _product(sizes: dict[str, int]) -> str:
    names = {MICRO: "micro batch", STEPS: "accumulation"}
    return " x ".join(f"{names[name]} {sizes[name]}" for name in (MICRO, STEPS) if name in sizes)


def _has_auto(document: Document) -> bool:
    return any(document.value(name) == "auto" for name in (TRAIN, MICRO, STEPS))


def wrong_world(document: Document, job: Job) -> Iterator[Hit]:
    """Batch sizes that the world size of this launch makes false."""
    sizes, ranks = _written(document), data_parallel_size(document, job)
    member = document.member(TRAIN)
    if sizes is None or ranks is None or member is None or TRAIN not in sizes or _has_auto(document):
        return
    per_rank = sizes.get(MICRO, 1) * sizes.get(STEPS, 1)
    if sizes[TRAIN] % per_rank and len(sizes) > 1:
        return
    exact = sizes[TRAIN] == per_rank * ranks if len(sizes) == 3 else sizes[TRAIN] % (per_rank * ranks) == 0
    if exact:
        return
    unit = per_rank * ranks
    near = (
        [unit]
        if len(sizes) == 3
        else [size for size in (sizes[TRAIN] // unit * unit, -(-sizes[TRAIN] // unit) * unit) if size > 0]
    )
    worlds = [sizes[TRAIN] // per_rank] if len(sizes) == 3 else _divisors(sizes[TRAIN] // per_rank)
    product = (_product(sizes) + " x " if len(sizes) > 1 else "") + f"{ranks} data-parallel ranks"
    yield Hit(
        at=member.node,
        path=TRAIN,
        message=f"{TRAIN} {sizes[TRAIN]} is not {'' if len(sizes) == 3 else 'a multiple of '}{product} = {unit}",
        effect="DeepSpeed refuses to start",
        fix=f"write {' or '.join(map(str, near))}, leave {TRAIN} out, or run {_listed(worlds)} data-parallel ranks",
        url="https://github.com/OpenRLHF/OpenRLHF/issues/346",
    )


def valid_worlds(document: Document, job: Job) -> Iterator[Hit]:
    """The world sizes at which a file with fixed batch sizes is valid, where none is known."""
    sizes = _written(document)
    member = document.member(TRAIN)
    if sizes is None or member is None or TRAIN not in sizes or job.num_processes is not None or _has_auto(document):
        return
    per_rank = sizes.get(MICRO, 1) * sizes.get(STEPS, 1)
    if sizes[TRAIN] % per_rank:
        return
    worlds = [sizes[TRAIN] // per_rank] if len(sizes) == 3 else _divisors(sizes[TRAIN] // per_rank)
    yield Hit(
        at=member.node,
        path=TRAIN,
        message=f"{TRAIN} {sizes[TRAIN]} fixes the number of ranks",
        effect=f"the file is valid at {_listed(worlds)} data-parallel ranks only; DeepSpeed refuses every other number",
        fix=f"leave {TRAIN} out, or pass --num-processes to check it here",
    )


def _divisors(number: int) -> list[int]:
    small = [size for size in range(1, min(int(number**0.5), 100_000) + 1) if number % size == 0]
    return sorted({*small, *(number // size for size in small)})


def _listed(sizes: list[int]) -> str:
    shown_sizes = sizes if len(sizes) <= 8 else sizes[:7]
    text = ", ".join(map(str, shown_sizes[:-1])) + (" or " if len(shown_sizes) > 1 else "") + str(shown_sizes[-1])
    return text if len(sizes) <= 8 else f"{', '.join(map(str, shown_sizes))}, ... or {sizes[-1]}"


def injected_accumulation(document: Document, job: Job) -> Iterator[Hit]:
    """A file without accumulation, into which Accelerate writes 1."""
    if not document.has(STEPS) and (document.has(MICRO) or document.has(TRAIN)):
        uses_auto = any(document.value(name) == "auto" for name in (TRAIN, MICRO))
        yield Hit(
            at=document.root,
            path=STEPS,
            message=f"{STEPS} is not written",
            effect="Accelerate and the Trainer write 1 into it; the Trainer's own "
            "gradient_accumulation_steps does not arrive",
            fix=f'add "{STEPS}", "auto" under the Trainer or Accelerate',
            severity="warning" if uses_auto else None,
        )


def batch_is_no_number(document: Document, job: Job) -> Iterator[Hit]:
    """A batch size below 1."""
    for name in (TRAIN, MICRO, STEPS):
        member = document.member(name)
        size = whole(member.node.data) if member else None
        if member is not None and ((size is not None and size < 1) or member.node.data is False):
            yield Hit(
                at=member.node,
                path=name,
                message=f"{name} is {shown(member.node.data)}",
                effect="DeepSpeed refuses to start",
                fix="write a whole number of at least 1",
            )


RULES = (
    Rule(
        code="DS601",
        name="no-batch-size",
        severity="error",
        reads="deepspeed",
        check=no_batch_size,
        summary="Neither the global batch nor the micro batch is written.",
    ),
    Rule(
        code="DS602",
        name="impossible-batch",
        severity="error",
        reads="deepspeed",
        check=impossible_batch,
        url=RANKS_URL,
        summary="Batch sizes that no world size makes true.",
    ),
    Rule(
        code="DS603",
        name="batch-and-world-size",
        severity="error",
        reads="deepspeed",
        check=wrong_world,
        summary="Batch sizes that do not go with the number of processes.",
    ),
    Rule(
        code="DS604",
        name="batch-fixes-world-size",
        severity="note",
        reads="deepspeed",
        check=valid_worlds,
        url=RANKS_URL,
        summary="Batch sizes that hold at certain world sizes only.",
    ),
    Rule(
        code="DS605",
        name="injected-accumulation",
        severity="note",
        reads="deepspeed",
        check=injected_accumulation,
        url="https://github.com/huggingface/accelerate/issues/1970",
        summary="No accumulation, into which Accelerate writes 1.",
    ),
    Rule(
        code="DS606",
        name="batch-below-one",
        severity="error",
        reads="deepspeed",
        check=batch_is_no_number,
        summary="A batch size below 1.",
    ),
)
