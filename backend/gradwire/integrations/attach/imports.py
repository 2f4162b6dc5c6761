"""Runs a function when a library has been imported, so that nothing is imported for the watching's sake."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

# Each function is imported with its module when the library is there.
_WATCHED = {
    "torch": "watch_torch",
    "torch.utils.data.dataloader": "watch_loader",
    "torch.distributed.checkpoint": "watch_distributed_checkpoint",
    "safetensors.torch": "watch_safetensors",
    "accelerate.accelerator": "watch_accelerate",
    "deepspeed.runtime.engine": "watch_deepspeed",
    "transformers.trainer": "watch_trainer",
    "lightning.pytorch.loops.evaluation_loop": "watch_lightning_evaluation",
    "lightning.pytorch.trainer.trainer": "watch_lightning",
    "pytorch_lightning.loops.evaluation_loop": "watch_lightning_evaluation",
    "pytorch_lightning.trainer.trainer": "watch_lightning",
}


def watch_imports() -> None:
    """Have the hooks of `gradwire.integrations.attach.hooks` put in place as the libraries are imported."""
    sys.meta_path.insert(0, _Finder())


def _put_hooks(module: ModuleType) -> None:
    from gradwire.integrations.attach.harmless import Harmless

    # A version of a library that has not what is hooked is imported all the same.
    with Harmless():
        from gradwire.integrations.attach import hooks

        getattr(hooks, _WATCHED[module.__name__])(module)


class _Finder(MetaPathFinder):
    """Finds the watched modules where they would be found anyway, and adds to their loading."""

    def __init__(self) -> None:
        self._finding: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's own spec with a loader that runs the function afterwards; None for all others."""
        if fullname not in _WATCHED or fullname in self._finding:
            return None
        self._finding.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._finding.discard(fullname)
        if spec is None or spec.loader is None:
            return None
        spec.loader = _Loader(spec.loader, _put_hooks)
        return spec


class _Loader(Loader):
    """Loads as `own` does, hands the module back to it, and calls `after`."""

    def __init__(self, own: Loader, after: Callable[[ModuleType], None]) -> None:
        self._own = own
        self._after = after

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Make the module as its own loader does."""
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, with its own loader in its spec."""
        module.__loader__ = self._own
        if module.__spec__ is not None:
            module.__spec__.loader = self._own
        self._own.exec_module(module)
        self._after(module)
