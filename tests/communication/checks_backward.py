"""Each method beside what changes the backward pass itself; `test_communication_ddp.py` runs it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.communication.models import WIDTH, Layers, Run, assert_ranks_identical, for_each_method, settings


class Wide(nn.Module):
    """Larger than torch's first bucket, 1 MiB, below which it asserts when it cuts a compiled graph into buckets."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 8000), nn.Tanh(), nn.Linear(8000, WIDTH)) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


def check_torch_compile_trains_the_same() -> None:
    def check(method: str) -> None:
        trained = []
        for compiled in (False, True):
            # Then the buckets stay as they are: a compiled backward pass has another order of gradients.
            run = Run(settings(method), model=Wide, bucket_cap_mb=1, find_unused_parameters=True)
            start = run.parameters()
            if compiled:
                torch._dynamo.reset()
                torch._dynamo.utils.counters.clear()
                run.compile()
            run.train(0, 4)
            assert_ranks_identical(run)
            trained.append(run.parameters())
            run.communication.close()
        graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        assert graphs, "nothing was compiled"
        assert (trained[0] - trained[1]).norm() < 1e-5 * (trained[0] - start).norm()

    for_each_method(check)


class Checkpointed(Layers):
    def forward(self, x: Tensor, skip: frozenset[int] = frozenset()) -> Tensor:
        for layer in self.layers:
            x = checkpoint(nn.Sequential(layer, nn.Tanh()), x, use_reentrant=False) + x
        return x


def check_activation_checkpointing() -> None:
    def check(method: str) -> None:
        run = Run(settings(method), model=Checkpointed)
        run.train(0, 5)
        assert_ranks_identical(run)
        run.communication.close()

    for_each_method(check)
