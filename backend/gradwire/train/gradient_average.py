"""Averages gradients over ranks after the backward passes, where nothing can do it within them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed

_MESSAGE_BYTES = 25 << 20


def average_gradients(parameters: Sequence[Any], group: Any) -> None:
    """Replace every gradient by its mean over the ranks of `group`; all of them must hold the same parameters.

    Messages are of 25 MiB, all in flight at once; a parameter without a gradient counts as zero.
    """
    sent = []
    for some in _in_messages(parameters):
        for parameter in some:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        message = torch.cat([parameter.grad.flatten() for parameter in some])
        message /= torch.distributed.get_world_size(group)
        sent.append((some, message, torch.distributed.all_reduce(message, group=group, async_op=True)))
    for some, message, work in sent:
        work.wait()
        for parameter, mean in zip(some, message.split([parameter.numel() for parameter in some]), strict=True):
            parameter.grad.copy_(mean.view_as(parameter.grad))


def _in_messages(parameters: Sequence[Any]) -> Iterator[list[Any]]:
    some: list[Any] = []
    size = 0
    for parameter in parameters:
        bytes_here = parameter.numel() * parameter.element_size()
        if some and (size + bytes_here > _MESSAGE_BYTES or parameter.dtype != some[0].dtype):
            yield some
            some, size = [], 0
        some.append(parameter)
        size += bytes_here
    if some:
        yield some
