"""What PowerSGD and its alternating form share: factors per matrix, and vectors that travel with the factors."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradwire.train.communication.layout import Layout, MatrixBatch, Slot, pieces, split_matrices
from gradwire.train.communication.message import Message, arithmetic_dtype
from gradwire.train.communication.per_parameter import PerParameter
from gradwire.train.communication.unused import UnusedHere


@dataclass(frozen=True, kw_only=True, slots=True)
class LowRankOptions:
    """The recipe's options; `wire_dtype` None: the gradients' own. `unused`: some ranks may not use a parameter."""

    matrix_approximation_rank: int
    min_compression_rate: float
    error_feedback: bool
    warm_start: bool
    start_step: int
    wire_dtype: torch.dtype | None
    unused: bool


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LowRankPlan:
    """How one bucket is factored: `batches` of matrices, `whole` slots sent uncompressed."""

    layout: Layout
    batches: tuple[MatrixBatch, ...]
    whole: tuple[Slot, ...]
    unused: bool

    def with_whole(self, factors: Sequence[int]) -> list[int]:
        """Return part sizes: one per batch, then one per whole slot, then a flag per slot where some are unused."""
        flags = [len(self.layout.slots)] if self.unused else []
        return [*factors, *(slot.numel for slot in self.whole), *flags]

    def left_sizes(self) -> list[int]:
        return [len(batch.slots) * batch.rows * batch.matrix_rank for batch in self.batches]

    def right_sizes(self) -> list[int]:
        return [len(batch.slots) * batch.columns * batch.matrix_rank for batch in self.batches]

    def left_factors(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Return each batch's part as [matrices, rows, rank]; parts beyond the batches are left alone."""
        return [
            part.view(len(batch.slots), batch.rows, batch.matrix_rank)
            for batch, part in zip(self.batches, parts, strict=False)
        ]

    def right_factors(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Return each batch's part as [matrices, rank, columns]: the transpose multiplies twice as fast."""
        return [
            part.view(len(batch.slots), batch.matrix_rank, batch.columns)
            for batch, part in zip(self.batches, parts, strict=False)
        ]

    def add_whole_gradients(self, errors: Tensor, flat: Tensor) -> None:
        """Add the whole slots in `flat` to those in `errors`."""
        for error, gradient in zip(pieces(errors, self.whole), pieces(flat, self.whole), strict=True):
            error.add_(gradient.to(errors.dtype))

    def pack_whole(self, matrices: Tensor, message: Message, unused: UnusedHere | None) -> None:
        """Copy the whole slots, and the flags of the used parameters, into the message."""
        for part, piece in zip(self._whole_parts(message), pieces(matrices, self.whole), strict=True):
            part.copy_(piece)
        if unused is not None:
            message.parts[-1].copy_(unused.flags)

    def keep_whole_errors(self, errors: Tensor, message: Message) -> None:
        """Leave in `errors` what rounding to the wire took from the whole slots; `message` sent, not yet received."""
        for part, piece in zip(self._whole_parts(message), pieces(errors, self.whole), strict=True):
            piece.sub_(part)

    def unpack_whole(self, message: Message, flat: Tensor) -> None:
        """Write the received averages of the whole slots into the bucket."""
        for part, piece in zip(self._whole_parts(message), pieces(flat, self.whole), strict=True):
            piece.copy_(part)

    def _whole_parts(self, message: Message) -> tuple[Tensor, ...]:
        first = len(self.batches)
        return message.parts[first : first + len(self.whole)]


def low_rank_plan(layout: Layout, options: LowRankOptions) -> LowRankPlan:
    """Return how the bucket with `layout` is factored."""
    batches, whole = split_matrices(
        layout,
        matrix_approximation_rank=options.matrix_approximation_rank,
        min_compression_rate=options.min_compression_rate,
    )
    return LowRankPlan(layout=layout, batches=batches, whole=whole, unused=options.unused)


def write_product(flat: Tensor, batch: MatrixBatch, left: Tensor, right: Tensor) -> None:
    """Overwrite the matrices of `batch` in `flat` by left @ right."""
    target = batch.view(flat)
    if flat.dtype == left.dtype:
        torch.bmm(left, right, out=target)
    else:
        target.copy_(torch.bmm(left, right))


def subtract_product(flat: Tensor, batch: MatrixBatch, left: Tensor, right: Tensor) -> None:
    """Subtract left @ right from the matrices of `batch` in `flat`."""
    batch.view(flat).baddbmm_(left, right, alpha=-1)


def discard_if_not_finite(message: Message, flat: Tensor, errors: Tensor | None) -> bool:
    """Return whether a received message shows an overflow; if so the average is NaN and the errors start anew.

    Otherwise one overflow (fp16 loss scaling makes some on purpose) would stay in the error for ever. Every rank
    sees the same message and so decides the same. On CUDA the question would stall the stream: see `clean`.
    """
    # One sum: any value that is not finite makes it so too (that the sum itself overflows is none of training's).
    if flat.is_cuda or math.isfinite(float(message.values.sum())):
        return False
    flat.fill_(float("nan"))
    if errors is not None:
        errors.zero_()
    return True


def clean(*kept: Tensor | None) -> None:
    """On CUDA, replace what is not finite in tensors that outlive the step by 0, without asking."""
    for tensor in kept:
        if tensor is not None and tensor.is_cuda:
            tensor.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)


def orthonormal(factors: Tensor) -> Tensor:
    """Return an orthonormal basis of the columns of each of `factors`, [matrices, rows, rank].

    Householder QR needs no epsilon: for zero or dependent columns it completes the basis.
    """
    return torch.linalg.qr(factors).Q


def random_factor(step: int) -> Callable[[str, int], Tensor]:
    """Return a source of standard normal factors that depend on nothing but the parameter's name and `step`.

    So every rank, and a resumed run, draws the same without sending anything.
    """

    def create(name: str, numel: int) -> Tensor:
        digest = hashlib.sha256(f"{name}\n{step}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))
        # Named, because a script may have made another device the default.
        return torch.randn(numel, generator=generator, device="cpu")

    return create


def draw(values: Tensor, entries: Sequence[tuple[str, int]], step: int) -> None:
    """Overwrite `values` with the random factors of `step`, in the order of `entries`."""
    create, offset = random_factor(step), 0
    for name, numel in entries:
        values[offset : offset + numel].copy_(create(name, numel))
        offset += numel


def factor_entries(batches: Sequence[MatrixBatch], *, left: bool) -> list[tuple[str, int]]:
    """Return (parameter name, elements) of the left or right factor of each matrix, in the order of a message."""
    return [
        (slot.name, (slot.rows if left else slot.columns) * batch.matrix_rank)
        for batch in batches
        for slot in batch.slots
    ]


def errors_of(table: PerParameter, layout: Layout, flat: Tensor) -> Tensor:
    """Return the error buffer of a bucket, with the bucket's own offsets."""
    like = torch.empty(0, dtype=arithmetic_dtype(flat), device=flat.device)
    return table.flat(layout, [(slot.name, slot.numel) for slot in layout.slots], like=like)
