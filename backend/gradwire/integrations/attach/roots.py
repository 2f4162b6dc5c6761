"""Finds the models that a running optimizer trains: the outermost modules that hold its parameters."""

from __future__ import annotations

import gc
from typing import Any

import torch

# A Lightning module is not called itself without DDP: its training_step calls what is inside.
_LEVELS_BELOW = 2


def roots_of(optimizer: Any) -> list[torch.nn.Module]:
    """Return the modules that no other module holds and that hold a parameter of `optimizer`; it takes a while.

    Looks at every object of the process, once: hooks on all modules from the start would slow each of them down and
    get into what torch.compile makes of them.
    """
    wanted = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    # By the type, not isinstance: that would wake proxies and lazy modules of other libraries.
    modules = [each for each in gc.get_objects() if issubclass(type(each), torch.nn.Module)]
    inner = {id(child) for module in modules for child in vars(module).get("_modules", {}).values()}
    outer = [module for module in modules if id(module) not in inner and "_modules" in vars(module)]
    return [module for module in outer if any(id(parameter) in wanted for parameter in module.parameters())]


def called_candidates(root: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the modules whose call may be the training pass: `root` and what is up to two levels inside it.

    What is inside a compiled module is left out: a hook there would not run, or be compiled.
    """
    found = []
    level = [root]
    for _ in range(_LEVELS_BELOW + 1):
        found += [module for module in level if not _compiles_its_call(module)]
        level = [
            child
            for module in level
            if not is_compiled(module)
            for child in module.children()
            if any(parameter.requires_grad for parameter in child.parameters())
        ]
    return found


def wrapped_by(module: torch.nn.Module) -> list[torch.nn.Module]:
    """Return what `module` wraps, from the outside in: what DDP, FSDP, DeepSpeed and torch.compile were given."""
    found: list[torch.nn.Module] = []
    while True:
        inner = getattr(module, "_orig_mod", None) or getattr(module, "module", None)
        if not isinstance(inner, torch.nn.Module) or inner in found:
            return found
        found.append(inner)
        module = inner


def is_compiled(module: torch.nn.Module) -> bool:
    """Return whether torch.compile made the module, or compiles its call."""
    return type(module).__name__ == "OptimizedModule" or _compiles_its_call(module)


def _compiles_its_call(module: torch.nn.Module) -> bool:
    return getattr(module, "_compiled_call_impl", None) is not None
