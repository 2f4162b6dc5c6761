"""Compiles a model with torch.compile as the recipe says."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from gradwire.documents.recipe_schema import Training


def compile_options(training: Training) -> dict[str, Any]:
    """Return the recipe's options as torch.compile takes them."""
    return {
        "backend": training.compile_backend,
        "mode": training.compile_mode,
        "dynamic": training.compile_dynamic,
        "fullgraph": training.compile_fullgraph,
    }


def compile_model(model: Any, training: Training) -> None:
    """Have `model` run through torch.compile where the recipe says so, in place: what wraps it sees its own modules.

    By regions: each of its repeated blocks, where it has some; the model as one else.
    """
    if not training.compile:
        return
    blocks = repeated_blocks(model) if training.compile_regional else []
    for module in blocks or [model]:
        module.compile(**compile_options(training))


def repeated_blocks(model: Any) -> list[Any]:
    """Return the modules of every outermost list of modules of one class, which is how models hold their blocks."""
    if isinstance(model, nn.ModuleList) and len({type(each) for each in model}) == 1:
        return list(model)
    return [block for child in model.children() for block in repeated_blocks(child)]


def compiled_notes(model: Any, training: Training) -> tuple[str, ...]:
    """Return how much of `model`, wrapped and ready, runs through torch.compile, for the reader of a measurement."""
    if not training.compile:
        return ()
    compiled = [each for each in model.modules() if _is_compiled(each)]
    again = [each for one in compiled for each in one.modules() if each is not one and _is_compiled(each)]
    words = f"; {len(again)} within another, which compiles twice" if again else ""
    return (f"torch.compile, {training.compile_backend}: {len(compiled)} module(s){words}",)


def graphs_note() -> str:
    """Return how many graphs torch.compile has made in this process; none: it never ran."""
    counters = torch._dynamo.utils.counters
    return f"torch.compile made {counters['stats']['unique_graphs']} graph(s)"


def _is_compiled(module: Any) -> bool:
    return type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None
