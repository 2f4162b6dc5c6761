"""Counts what a model is given in its training passes, each rank's share of it once."""

from __future__ import annotations

from typing import Any

from gradwire.integrations.counts import NOTHING, Counts, count_of
from gradwire.integrations.parallel import counts_here


class PassCounter:
    """Counts the batches of `model` (a module) between two calls of `take`.

    `mesh` names the dimensions along which ranks share a batch, as in `counts_here`: each batch is counted on one of
    them, and each slice of a sequence on the rank that has it. Passes of a model in evaluation mode don't count.
    """

    def __init__(self, model: Any, *, mesh: Any = None) -> None:
        self._counts_batches = counts_here(mesh)
        self._counts_slices = counts_here(mesh, given_slices=True)
        self._sum = NOTHING
        self._hook = model.register_forward_pre_hook(self._see, with_kwargs=True)

    @property
    def is_closed(self) -> bool:
        """Whether nothing is counted any more."""
        return self._hook is None

    def take(self) -> Counts:
        """Return what was counted since the last call; None where nothing could be told."""
        counted, self._sum = self._sum, NOTHING
        return counted

    def close(self) -> None:
        """Stop counting."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _see(self, model: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if not model.training:
            return
        found = count_of(arguments, named)
        self._sum = Counts(
            samples=_plus(self._sum.samples, found.samples, self._counts_batches),
            tokens=_plus(self._sum.tokens, found.tokens, self._counts_slices),
            slots=_plus(self._sum.slots, found.slots, self._counts_slices),
        )


def _plus(before: Any, found: Any, is_counting: bool) -> Any:
    if found is None:
        return before
    return (0 if before is None else before) + (found if is_counting else 0)
