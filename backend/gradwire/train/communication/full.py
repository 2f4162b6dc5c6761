"""none: full gradients, averaged by DDP's own all-reduce without any hook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from gradwire.errors import RunFailed
from gradwire.measure.traffic import StepTraffic
from gradwire.train.communication.reduction_clock import ReductionClock


class FullGradients:
    """What `none` communicates; there is no state."""

    def __init__(self, ddp_model: DistributedDataParallel, *, world_size: int) -> None:
        self.method = "none"
        self.failure: RunFailed | None = None
        parameters = [parameter for parameter in ddp_model.module.parameters() if parameter.requires_grad]
        self._gradient_bytes = sum(parameter.numel() * parameter.element_size() for parameter in parameters)
        self._wire_bytes = self._gradient_bytes * 2 * (world_size - 1) // world_size
        self._clock = ReductionClock(ddp_model)

    @property
    def last_step(self) -> StepTraffic | None:
        return StepTraffic(
            gradient_bytes=self._gradient_bytes,
            payload_bytes=self._gradient_bytes,
            wire_bytes=self._wire_bytes,
            communication_seconds=self._clock.reduction_seconds,
            exposed_seconds=self._clock.exposed_seconds,
        )

    def backward_ended(self) -> None:
        self._clock.backward_ended()

    def step_ended(self) -> None:
        pass

    def synchronise(self) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {"format_version": 1, "method": self.method}

    def load_state_dict(self, state: Mapping[str, Any]) -> tuple[str, ...]:
        if state.get("method") == self.method:
            return ()
        return (f"communication state of method {state.get('method')} is not used: the recipe asks for {self.method}",)

    def close(self) -> None:
        self._clock.close()
