"""none: full gradients, averaged by DDP's own all-reduce without any hook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradwire.errors import RunFailed
from gradwire.train.communication.interface import StepTraffic


class FullGradients:
    """What `none` and a world of one rank communicate; there is no state."""

    def __init__(self, gradient_bytes: int, world_size: int) -> None:
        self.method = "none"
        self.failure: RunFailed | None = None
        sent = gradient_bytes * 2 * (world_size - 1) // world_size
        self._traffic = StepTraffic(
            gradient_bytes=gradient_bytes, payload_bytes=gradient_bytes, wire_bytes=sent, communication_seconds=None
        )

    @property
    def last_step(self) -> StepTraffic | None:
        return self._traffic

    def state_dict(self) -> dict[str, Any]:
        return {"format_version": 1, "method": self.method}

    def load_state_dict(self, state: Mapping[str, Any]) -> tuple[str, ...]:
        if state.get("method") == self.method:
            return ()
        return (f"communication state of method {state.get('method')} is not used: the recipe asks for {self.method}",)

    def close(self) -> None:
        pass
