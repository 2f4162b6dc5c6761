"""Turns what Accelerate ends up with into recipe keys: the inverse of lowering a plan to an Accelerate YAML."""

from __future__ import annotations

from collections.abc import Iterator

from gradwire.importing.entry import Carried
from gradwire.targets.accelerate_effective import accelerate_default
from gradwire.targets.effective import Effective, Reading

_STRATEGIES = {"FSDP": "fsdp", "NO": "ddp", "MULTI_GPU": "ddp", "MULTI_CPU": "ddp"}
_PRECISIONS = {"no": "fp32", "bf16": "bf16-mixed", "fp16": "fp16-mixed"}
_DYNAMO = "dynamo_config.dynamo_"
_COMPILE_OPTIONS = (
    ("mode", "training.compile_mode"),
    ("use_dynamic", "training.compile_dynamic"),
    ("use_fullgraph", "training.compile_fullgraph"),
    ("use_regional_compilation", "training.compile_regional"),
)
COMPILERS = ("inductor", "cudagraphs", "aot_eager", "eager")
"""What a recipe compiles with; the others are gone, for other devices, or do not train."""

_FP8 = {"TE": "transformer-engine", "AO": "torchao"}


def carry_accelerate(reading: Reading, *, is_deepspeed: bool) -> Iterator[Carried]:
    """Yield the recipe keys that an Accelerate file settles; with DeepSpeed its own configuration settles the rest."""
    cpu = accelerate_at(reading, "use_cpu")
    kind = accelerate_at(reading, "distributed_type")
    yield Carried(
        path="training.device",
        value="cpu" if cpu.value or kind.value == "MULTI_CPU" else "cuda",
        sources=(cpu,),
    )
    if is_deepspeed:
        return
    yield Carried(
        path="parallelism.data.strategy",
        value=_STRATEGIES.get(str(kind.value), "ddp"),
        sources=(kind,),
    )
    precision = accelerate_at(reading, "mixed_precision")
    yield Carried(
        path="training.precision",
        value=_PRECISIONS.get(str(precision.value or "no"), "bf16-mixed"),
        sources=(precision,),
    )
    engine = reading.values.get("fp8_config.fp8_backend")
    if precision.value == "fp8" and engine is not None and engine.value in _FP8:
        yield Carried(path="training.fp8", value=_FP8[engine.value], sources=(engine,))
    yield from _compilation(reading)


def _compilation(reading: Reading) -> Iterator[Carried]:
    compiler = accelerate_at(reading, f"{_DYNAMO}backend")
    if str(compiler.value).lower() not in COMPILERS:
        return
    yield Carried(path="training.compile", value=True, sources=(compiler,))
    yield Carried(path="training.compile_backend", value=str(compiler.value).lower(), sources=(compiler,))
    # Only inductor reads a mode.
    for name, path in _COMPILE_OPTIONS[0 if compiler.value == "INDUCTOR" else 1 :]:
        option = accelerate_at(reading, f"{_DYNAMO}{name}")
        yield Carried(path=path, value=option.value, sources=(option,))


def accelerate_at(reading: Reading, path: str) -> Effective:
    """Return the value at a path, Accelerate's default where the file does not say it."""
    found = reading.values.get(path)
    if found is not None:
        return found
    value = accelerate_default(path, reading.values)
    return Effective(path=path, value=value, origin="default", note="Accelerate's default")
