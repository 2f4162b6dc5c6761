"""Turns what DeepSpeed ends up with into recipe keys: the inverse of lowering a plan to a DeepSpeed JSON."""

from __future__ import annotations

from collections.abc import Iterator

from gradwire.importing.entry import Carried
from gradwire.importing.sharding_table import carry_zero_sharding
from gradwire.targets.batch import MICRO, STEPS, Batch
from gradwire.targets.comparable import at, data_type, optimizer_kind
from gradwire.targets.deepspeed_effective import default_of
from gradwire.targets.effective import Effective, Reading

_STRATEGIES = ("ddp", "zero1", "zero2", "zero3")
_OPTIMIZER_FIELDS = {
    "lr": "learning_rate",
    "weight_decay": "weight_decay",
    "betas": "betas",
    "eps": "epsilon",
    "momentum": "momentum",
}
OPTIMIZERS = {
    "Adam": ("lr", "weight_decay", "betas", "eps"),
    "AdamW": ("lr", "weight_decay", "betas", "eps"),
    "SGD": ("lr", "weight_decay", "momentum"),
}


def carry_deepspeed(reading: Reading, batch: Batch) -> Iterator[Carried]:
    """Yield the recipe keys that a DeepSpeed configuration settles."""
    stage = at(reading, "zero_optimization.stage")
    yield Carried(path="parallelism.data.strategy", value=_STRATEGIES[int(stage.value)], sources=(stage,))
    yield from _batch(reading, batch)
    clip = at(reading, "gradient_clipping")
    limit = clip.value if isinstance(clip.value, int | float) and clip.value > 0 else None
    yield Carried(
        path="training.gradient_clip",
        value=limit,
        sources=(clip,),
        note=None if limit is not None else f"DeepSpeed does not clip at {clip.value}",
    )
    yield from _precision(reading)
    yield from _optimizer(reading)
    yield from carry_zero_sharding(reading)
    yield from _number_formats(reading)
    yield from _compilation(reading)


def _batch(reading: Reading, batch: Batch) -> Iterator[Carried]:
    for path, name, value in (
        (MICRO, "batch_size_per_gpu", batch.micro),
        (STEPS, "gradient_accumulation", batch.accumulation),
    ):
        source = reading.values.get(path)
        if source is None:
            source = Effective(path=path, value=value, origin="derived", note="worked out of the other batch sizes")
        yield Carried(path=f"training.{name}", value=value, sources=(source,))


def _precision(reading: Reading) -> Iterator[Carried]:
    fp16, bf16, autocast = (at(reading, f"{name}.enabled") for name in ("fp16", "bf16", "torch_autocast"))
    pure = [at(reading, f"bf16.{name}") for name in ("bf16_master_weights_and_grads", "bf16_optimizer_states")]
    sources: tuple[Effective, ...] = (fp16, bf16)
    if bf16.value and all(each.value for each in pure):
        value, sources = "bf16-true", (bf16, *pure)
    elif bf16.value:
        value = "bf16-mixed"
    elif fp16.value:
        value = "fp16-mixed"
    elif autocast.value:
        kind = at(reading, "torch_autocast.dtype")
        value, sources = f"{data_type(kind.value) or 'bf16'}-mixed", (autocast, kind)
    else:
        value = "fp32"
    yield Carried(path="training.precision", value=value, sources=sources)


def _optimizer(reading: Reading) -> Iterator[Carried]:
    kind, written = optimizer_kind(reading), reading.values.get("optimizer.type")
    if written is None or kind not in OPTIMIZERS:
        return
    mode = reading.values.get("optimizer.params.adam_w_mode")
    means_adamw = kind == "AdamW" and str(written.value).lower() == "adam"
    yield Carried(
        path="training.optimizer",
        value=kind,
        sources=(written,) if mode is None else (written, mode),
        note="DeepSpeed's Adam decays weights as AdamW does" if means_adamw else None,
    )
    for name in OPTIMIZERS[kind]:
        source = at(reading, f"optimizer.params.{name}")
        value = list(source.value) if name == "betas" else source.value
        yield Carried(path=f"training.{_OPTIMIZER_FIELDS[name]}", value=value, sources=(source,))


def _compilation(reading: Reading) -> Iterator[Carried]:
    """DeepCompile acts in engine.compile() alone, which compiles the model as one."""
    switch = reading.values.get("compile.deepcompile")
    if switch is not None and switch.value is True:
        note = "it acts where the script calls engine.compile()"
        yield Carried(path="training.compile", value=True, sources=(switch,), note=note)
        yield Carried(path="training.compile_regional", value=False, sources=(switch,))


def _number_formats(reading: Reading) -> Iterator[Carried]:
    for source, path, known in (
        ("communication_data_type", "communication.dtype", ("fp32", "bf16", "fp16")),
        ("data_types.grad_accum_dtype", "training.gradient_accumulation_dtype", ("fp32", "bf16")),
    ):
        written = reading.values.get(source)
        name = data_type(written.value) if written is not None else None
        # What gradients travel as in any case needs no word.
        own = default_of(source, {path: each for path, each in reading.values.items() if path != source})
        if written is not None and name in known and name != own:
            yield Carried(path=path, value=name, sources=(written,))
