"""Finds out what a training pass was given: sequences, tokens, and tokens with padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """`tokens` are real ones, maybe a tensor on the device, which is read later; `slots` count padding too.

    None: it cannot be told from what the model was given (images, features).
    """

    samples: int | None
    tokens: Any
    slots: int | None


NOTHING = Counts(samples=None, tokens=None, slots=None)


def count_of(arguments: Sequence[Any], named: Mapping[str, Any]) -> Counts:
    """Return the counts of a model's arguments.

    Tokens are the entries of `input_ids` (or of the first argument, where that is integers in rows) that
    `attention_mask` keeps, all without one. Batches that are mappings, and pairs of inputs and labels, are looked into.
    """
    if named.get("input_ids") is not None or named.get("inputs_embeds") is not None:
        return _of_mapping(named)
    for given in (*arguments, *named.values()):
        if isinstance(given, torch.Tensor):
            return _of_tensor(given)
        if isinstance(given, Mapping):
            return _of_mapping(given)
        if isinstance(given, list | tuple):
            return count_of(given, {})
    return NOTHING


def _of_mapping(batch: Mapping[str, Any]) -> Counts:
    given = next((batch[key] for key in ("input_ids", "inputs_embeds") if batch.get(key) is not None), None)
    if not isinstance(given, torch.Tensor) or given.dim() < 2:
        return count_of([value for value in batch.values() if isinstance(value, torch.Tensor)], {})
    slots = given.shape[:2].numel()
    mask = batch.get("attention_mask")
    # Left on the device: reading it here would wait for the device.
    tokens = mask.sum() if isinstance(mask, torch.Tensor) and mask.dim() == 2 else slots
    return Counts(samples=given.shape[0], tokens=tokens, slots=slots)


def _of_tensor(given: torch.Tensor) -> Counts:
    if given.dim() == 0:
        return NOTHING
    if given.dim() == 2 and not given.is_floating_point() and not given.is_complex():
        return Counts(samples=given.shape[0], tokens=given.numel(), slots=given.numel())
    return Counts(samples=given.shape[0], tokens=None, slots=None)
