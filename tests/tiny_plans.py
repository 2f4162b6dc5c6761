"""Plans and machines that measurements are made of without running anything."""

from __future__ import annotations

from typing import Any

from gradwire.documents.measurement_schema import Hardware
from gradwire.documents.plan_schema import Plan
from gradwire.documents.recipe_schema import MeasurementOptions, Model, Parallelism, Pipeline, Recipe, Training
from gradwire.measure.hardware import with_fingerprint
from gradwire.plan import Backend, Device, settle

TINY = Model(family="gpt2", hidden_size=8, layers=1, attention_heads=1, sequence_length=16)


def tiny_plan(
    *,
    backend: Backend = "native",
    num_gpus: int,
    device: Device = "cpu",
    warmup_steps: int = 1,
    model: Model | None = TINY,
    pipeline: Pipeline | None = None,
    **training: Any,
) -> Plan:
    """Return the plan of a tiny model with batches of 4; `training` are more keys of that section."""
    recipe = Recipe(
        model=model,
        training=Training(num_gpus=num_gpus, **{"batch_size_per_gpu": 4, **training}),
        parallelism=Parallelism(pipeline=pipeline),
        measurement=MeasurementOptions(warmup_steps=warmup_steps),
    )
    return settle(recipe, recipe_name="test", backend=backend, device=device)


def machine_of(device_name: str, *, cpu_count: int) -> Hardware:
    """Return a machine with that device in it."""
    return with_fingerprint(
        device_name=device_name,
        cpu="A Processor",
        cpu_count=cpu_count,
        memory_bytes=2**34,
        platform_name="Linux x86_64",
    )
