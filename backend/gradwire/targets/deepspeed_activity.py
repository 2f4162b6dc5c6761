"""Says of a DeepSpeed key whether anything acts on it at the stage and beside the values that the file has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradwire.targets.effective import Effective
from gradwire.targets.schema import spec_at

_ZERO = "zero_optimization"
OF_BUCKETS = (
    "contiguous_gradients", "reduce_scatter", "reduce_bucket_size", "use_multi_rank_bucket_allreduce", "overlap_comm",
    "ignore_unused_parameters", "round_robin_gradients", "parameter_alignment", "elastic_checkpoint",
)  # fmt: skip
"""ZeRO keys that BF16_Optimizer of DeepSpeed 0.19.8 does not get: see `uses_bf16_optimizer`."""

# Keys of these sections that act although the section is switched off.
_ALWAYS = ("fp16.auto_cast",)


def idle_reason(path: str, values: Mapping[str, Effective], stage: int) -> str | None:
    """Return why a key does nothing; None: it acts, or its section has no switch."""
    spec = spec_at("deepspeed", path) or {}
    section, _, name = path.rpartition(".")
    stages = spec.get("x-stages") or _section_stages(section)
    if stages is not None and stage not in stages and not _is_refused_elsewhere(path, values):
        return f"it acts at {stages_in_words(stages)}, and this is stage {stage}"
    if section == _ZERO and name in OF_BUCKETS and _runs_bf16_optimizer(values, stage):
        return "BF16_Optimizer, which runs stage 1 with bf16 and gradients in fp32, does not read it"
    for neighbour, wanted in spec.get("x-when", {}).items():
        actual = _value(f"{section}.{neighbour}" if section else neighbour, values)
        if actual not in wanted:
            return f"it acts where {neighbour} is {' or '.join(map(str, wanted))}, and that is {actual}"
    switch = f"{section}.enabled"
    if section and name != "enabled" and path not in _ALWAYS and spec_at("deepspeed", switch) is not None:
        if not _value(switch, values):
            return f"{section} is switched off"
    elif name == "enabled" and section and values[path].value is False and section not in ("fp16", "bf16"):
        return f"{section} is switched off, which is the default"
    return None


def _runs_bf16_optimizer(values: Mapping[str, Effective], stage: int) -> bool:
    gradients = str(_value("data_types.grad_accum_dtype", values)).removeprefix("torch.")
    offloads = _value(f"{_ZERO}.offload_optimizer.device", values) != "none"
    in_fp32 = gradients in ("fp32", "float32", "float")
    return stage == 1 and in_fp32 and bool(_value("bf16.enabled", values)) and not offloads


def _section_stages(section: str) -> list[int] | None:
    return (spec_at("deepspeed", section) or {}).get("x-stages") if section else None


def _is_refused_elsewhere(path: str, values: Mapping[str, Effective]) -> bool:
    """Whether DeepSpeed stops at the key outside its stages rather than pass over it."""
    stops = path in ("zero_optimization.compute_grad_norm",) or path.endswith(
        ("_master_weights_and_grads", "bf16_optimizer_states")
    )
    return stops and path in values


def stages_in_words(stages: list[int]) -> str:
    """Return `stage 3` or `stages 1, 2 and 3`."""
    names = [str(stage) for stage in stages]
    return f"stage {names[0]}" if len(names) == 1 else f"stages {', '.join(names[:-1])} and {names[-1]}"


def _value(path: str, values: Mapping[str, Effective]) -> Any:
    found = values.get(path)
    return (spec_at("deepspeed", path) or {}).get("default") if found is None else found.value
