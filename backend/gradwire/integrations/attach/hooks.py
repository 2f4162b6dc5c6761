"""Which functions of which libraries are watched: each goes on to do what it did, and leaves a mark."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from gradwire.integrations.attach.observer import observer
from gradwire.measure.marks import Mark


def watch_torch(torch: ModuleType) -> None:
    """See each step of each optimizer, and what torch saves."""
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    watcher = observer()
    register_optimizer_step_pre_hook(lambda optimizer, *_: watcher.optimizer_begins(optimizer))
    register_optimizer_step_post_hook(lambda optimizer, *_: watcher.optimizer_ended(optimizer))
    _set_aside(torch, "save")


def watch_loader(dataloader: ModuleType) -> None:
    """See waits for a batch of torch's DataLoader."""
    # Private, and what every loader's iterator inherits; without it the waits between micro-steps count as passes.
    if hasattr(dataloader, "_BaseDataLoaderIter"):
        _surround(dataloader._BaseDataLoaderIter, "__next__", "loader-begin", "loader-end")


def watch_distributed_checkpoint(checkpoint: ModuleType) -> None:
    """Set distributed checkpoints aside."""
    _set_aside(checkpoint, "save")


def watch_safetensors(safetensors: ModuleType) -> None:
    """Set the writing of weights aside."""
    _set_aside(safetensors, "save_file", "save_model")


def watch_accelerate(accelerator: ModuleType) -> None:
    """Set Accelerate's checkpoints aside."""
    _set_aside(accelerator.Accelerator, "save_state", "save_model")


def watch_trainer(trainer: ModuleType) -> None:
    """Set the Trainer's evaluation and checkpoints aside."""
    _set_aside(trainer.Trainer, "evaluate", "predict", "_save_checkpoint")


def watch_lightning(trainer: ModuleType) -> None:
    """Set Lightning's checkpoints aside."""
    _set_aside(trainer.Trainer, "save_checkpoint")


def watch_lightning_evaluation(loop: ModuleType) -> None:
    """Set Lightning's validation aside."""
    _set_aside(loop._EvaluationLoop, "run")


def watch_deepspeed(engine: ModuleType) -> None:
    """See the steps of DeepSpeed's engine, whose optimizers step several times in one, and its checkpoints."""
    watcher = observer()
    kind = engine.DeepSpeedEngine
    _set_aside(kind, "save_checkpoint")
    own = kind.step

    @functools.wraps(own)
    def step(self: Any, *arguments: Any, **named: Any) -> Any:
        ends = watcher.engine_begins(self)
        result = own(self, *arguments, **named)
        watcher.engine_ended(self, ends_step=ends)
        return result

    kind.step = step


def _set_aside(owner: Any, *names: str) -> None:
    """Leave what the functions take out of every step; a version without one of them is watched without it."""
    for name in names:
        if hasattr(owner, name):
            _surround(owner, name, "aside-begin", "aside-end")


def _surround(owner: Any, name: str, begin: Mark, end: Mark) -> None:
    watcher = observer()
    own: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(own)
    def surrounded(*arguments: Any, **named: Any) -> Any:
        with watcher.between(begin, end):
            return own(*arguments, **named)

    setattr(owner, name, surrounded)
