"""One rank's stage of a pipeline and the loss of its chunks, as torch's schedules call them; both are timed."""

from __future__ import annotations

from typing import Any

from torch.distributed.pipelining import PipelineStage
from torch.nn.parallel import DistributedDataParallel

from gradwire.train.model import token_loss
from gradwire.train.stopwatch import Lap


class TimedStage(PipelineStage):  # type: ignore[misc]
    """A stage that gives its chunks' time to the passes, and the time between them to the bubble.

    Where DDP averages its gradients, it does so in the step's last backward pass: `is_last_micro_step` says whether the
    schedule runs now for that one.
    """

    def __init__(self, lap: Lap, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._lap = lap
        self.is_replicated = isinstance(self.submod, DistributedDataParallel)
        self.is_last_micro_step = True

    def forward_one_chunk(self, *arguments: Any, **options: Any) -> Any:
        self._lap("pipeline_bubble")
        output = super().forward_one_chunk(*arguments, **options)
        self._lap("passes")
        return output

    def backward_one_chunk(self, *arguments: Any, last_backward: bool = False, **options: Any) -> None:
        self._lap("pipeline_bubble")
        if self.is_replicated:
            last_backward = last_backward and self.is_last_micro_step
        super().backward_one_chunk(*arguments, last_backward=last_backward, **options)
        self._lap("passes")

    def backward_weight_one_chunk(self, *arguments: Any, **options: Any) -> None:
        self._lap("pipeline_bubble")
        super().backward_weight_one_chunk(*arguments, **options)
        self._lap("passes")


class ChunkLoss:
    """The loss of one chunk as its part of the step's: its labels' summed loss times `share`, which each batch sets.

    A chunk's mean would count chunks with few labels too much.
    """

    def __init__(self, lap: Lap) -> None:
        self._lap = lap
        self.share = 1.0

    def __call__(self, logits: Any, labels: Any) -> Any:
        loss = token_loss(logits, labels, reduction="sum") * self.share
        self._lap("passes")
        return loss
