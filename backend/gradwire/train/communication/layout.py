"""Where each parameter's gradient lies in a bucket, and which matrices of a bucket are multiplied together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

Kept = TypeVar("Kept")


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """One parameter's gradient in a flat buffer: element offset, and the matrix it is seen as (a vector: one column).

    The rows run along the dimension with the largest stride, so that the matrix is the memory as it lies.
    """

    name: str
    offset: int
    rows: int
    columns: int

    @property
    def numel(self) -> int:
        return self.rows * self.columns

    @property
    def end(self) -> int:
        return self.offset + self.numel


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Layout:
    """The slots of one bucket, in memory order. Compared and hashed by identity: one object per bucket."""

    slots: tuple[Slot, ...]
    numel: int

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(slot.name for slot in self.slots)


@dataclass(frozen=True, kw_only=True, slots=True)
class MatrixBatch:
    """Matrices of one shape that lie at equal distances in a bucket, so that one strided view holds them all.

    `matrix_rank` is that of their factors: matrix_approximation_rank, or what the shape allows.
    """

    slots: tuple[Slot, ...]
    matrix_rank: int

    @property
    def rows(self) -> int:
        return self.slots[0].rows

    @property
    def columns(self) -> int:
        return self.slots[0].columns

    def view(self, flat: Tensor) -> Tensor:
        """Return the batch in `flat` as [matrices, rows, columns], without a copy."""
        first = self.slots[0]
        stride = self.slots[1].offset - first.offset if len(self.slots) > 1 else first.numel
        return flat.as_strided(
            (len(self.slots), first.rows, first.columns),
            (stride, first.columns, 1),
            flat.storage_offset() + first.offset,
        )

    def add_gradients(self, errors: Tensor, flat: Tensor) -> None:
        """Add the batch's matrices in `flat` to those in `errors`."""
        self.view(errors).add_(self.view(flat).to(errors.dtype))


def layout_of(names: Sequence[str], gradients: Sequence[Tensor]) -> Layout:
    """Return the layout of a bucket whose `gradients` follow each other in one flat buffer."""
    slots, offset = [], 0
    for name, gradient in zip(names, gradients, strict=True):
        # Without elements it is a vector like others: there is no row to divide by.
        is_matrix = gradient.dim() > 1 and gradient.numel()
        rows = gradient.shape[_outermost(gradient)] if is_matrix else max(gradient.numel(), 1)
        slots.append(Slot(name=name, offset=offset, rows=rows, columns=gradient.numel() // rows))
        offset += gradient.numel()
    return Layout(slots=tuple(slots), numel=offset)


def packed(slots: Sequence[Slot]) -> Layout:
    """Return the layout of `slots` moved together into a buffer of their own."""
    moved, offset = [], 0
    for slot in slots:
        moved.append(Slot(name=slot.name, offset=offset, rows=slot.rows, columns=slot.columns))
        offset += slot.numel
    return Layout(slots=tuple(moved), numel=offset)


def split_matrices(
    layout: Layout, *, matrix_approximation_rank: int, min_compression_rate: float
) -> tuple[tuple[MatrixBatch, ...], tuple[Slot, ...]]:
    """Return the batches of matrices worth factoring, and the slots that are sent whole.

    A matrix is worth it when (rows + columns) x rank x min_compression_rate < rows x columns, torch's rule.
    """
    by_shape: defaultdict[tuple[int, int], list[Slot]] = defaultdict(list)
    whole = []
    for slot in layout.slots:
        matrix_rank = min(matrix_approximation_rank, slot.rows, slot.columns)
        if (slot.rows + slot.columns) * matrix_rank * min_compression_rate < slot.numel:
            by_shape[slot.rows, slot.columns].append(slot)
        else:
            whole.append(slot)
    batches = [
        MatrixBatch(slots=tuple(run), matrix_rank=min(matrix_approximation_rank, *shape))
        for shape, slots in by_shape.items()
        for run in _evenly_spaced(slots)
    ]
    return tuple(batches), tuple(whole)


def without_overlap(kept: dict[Layout, Kept], layout: Layout) -> dict[Layout, Kept]:
    """Return what is `kept` for buckets that share no parameter with `layout`: the others no longer exist."""
    names = set(layout.names)
    return {other: value for other, value in kept.items() if names.isdisjoint(other.names)}


def pieces(flat: Tensor, slots: Sequence[Slot]) -> list[Tensor]:
    """Return each slot's elements of `flat` as a 1-D view."""
    return [flat[slot.offset : slot.end] for slot in slots]


def _outermost(gradient: Tensor) -> int:
    strides = gradient.stride()
    return max(range(gradient.dim()), key=lambda dimension: (strides[dimension], -dimension))


def _evenly_spaced(slots: Sequence[Slot]) -> list[list[Slot]]:
    runs: list[list[Slot]] = []
    for slot in slots:
        run = runs[-1] if runs else []
        if len(run) == 1 or (len(run) > 1 and slot.offset - run[-1].offset == run[1].offset - run[0].offset):
            run.append(slot)
        else:
            runs.append([slot])
    return runs
