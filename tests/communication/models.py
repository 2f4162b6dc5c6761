"""Small models, a training loop and comparisons that the checks share; needs torch."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gradwire.documents.recipe_schema import Compression
from gradwire.train.communication import GradientCommunication, register
from gradwire.train.communication.hook import HookedCommunication

WIDTH = 24
# Gradients averaged in every step.
AVERAGING_METHODS = ("fp16", "bf16", "powersgd", "powersgd-alternating", "int8", "topk")
OWN_METHODS = (*AVERAGING_METHODS, "local-sgd", "local-sgd-int8")
# Small models: a bucket of a few kilobytes makes seven of them.
SEVEN_BUCKETS_MB = WIDTH * (WIDTH + 1) * 4 / 2**20


def settings(method: str, **options: Any) -> Compression:
    """Return options that compress small matrices from step 2 on; local-sgd synchronises every second step."""
    defaults: dict[str, Any] = {
        "matrix_approximation_rank": 2,
        "min_compression_rate": 1.0,
        "start_step": 2,
        "int8_block_size": 32,
        "topk_fraction": 0.1,
        "local_steps": 2,
    }
    if method == "local-sgd-int8":
        outer = {"outer_learning_rate": 0.9, "outer_momentum": 0.1}
        method, options = "local-sgd", {"difference_dtype": "int8", **outer, **options}
    return Compression(method=method, **(defaults | options))


class Layers(nn.Module):
    """Seven equal layers; with `skip`, a forward pass leaves out the ones it names."""

    def __init__(self, layers: int = 7) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(layers))

    def forward(self, x: Tensor, skip: frozenset[int] = frozenset()) -> Tensor:
        for index, layer in enumerate(self.layers):
            if index not in skip:
                x = torch.tanh(layer(x)) + x
        return x


class Run:
    """One DDP model with its optimizer and its communication."""

    def __init__(
        self,
        compression: Compression,
        *,
        model: Callable[[], nn.Module] = Layers,
        dtype: torch.dtype | None = torch.float32,
        bucket_cap_mb: float | None = SEVEN_BUCKETS_MB,
        extra_synchronisations: int = 0,
        process_group: dist.ProcessGroup | None = None,
        **ddp: Any,
    ) -> None:
        torch.manual_seed(0)
        process_group = process_group or dist.distributed_c10d._get_default_group()
        self.model = DistributedDataParallel(
            model().to(dtype), bucket_cap_mb=bucket_cap_mb, process_group=process_group, **ddp
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.communication: GradientCommunication = register(
            self.model,
            compression,
            process_group=process_group,
            extra_synchronisations=extra_synchronisations,
        )
        self.dtype = dtype
        self._forward: Callable[..., Tensor] = self.model

    def compile(self) -> None:
        """Run the model through torch.compile; without code generation, which takes long."""
        self._forward = torch.compile(self.model, backend="aot_eager")

    def train(
        self,
        first: int,
        last: int,
        *,
        micro_steps: int = 1,
        skip: Callable[[int], frozenset[int]] | None = None,
        synchronise_first: bool = False,
    ) -> None:
        """Train steps `first` to `last` - 1 on data that depends on nothing but step, micro-step and rank."""
        for step in range(first, last):
            self.optimizer.zero_grad()
            for micro_step in range(micro_steps):
                seed = (step * micro_steps + micro_step) * dist.get_world_size() + dist.get_rank()
                generator = torch.Generator().manual_seed(seed)
                x = torch.randn(8, WIDTH, generator=generator, device="cpu")
                x = x.to(device=torch.get_default_device(), dtype=self.dtype)
                synchronise = micro_step == micro_steps - 1 or (synchronise_first and step == micro_step == 0)
                with nullcontext() if synchronise else self.model.no_sync():
                    output = self._forward(x, skip(step)) if skip else self._forward(x)
                    output.square().mean().backward()
                    self.communication.backward_ended()
            self.optimizer.step()
            self.communication.step_ended()

    def parameters(self) -> Tensor:
        """Return all parameters in one vector."""
        return torch.cat([parameter.detach().flatten() for parameter in self.model.parameters()])

    def gradients(self) -> Tensor:
        """Return all gradients in one vector."""
        return torch.cat([parameter.grad.flatten() for parameter in self.model.parameters()])

    def save(self) -> bytes:
        """Return model, optimizer and communication state as a checkpoint's bytes, with ranks made equal first."""
        self.communication.synchronise()
        state = {
            "model": self.model.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "communication": self.communication.state_dict(),
        }
        buffer = io.BytesIO()
        torch.save(state, buffer)
        return buffer.getvalue()

    def load(self, checkpoint: bytes) -> tuple[str, ...]:
        """Take over a checkpoint, read with `weights_only`; return what starts anew."""
        state = torch.load(io.BytesIO(checkpoint), weights_only=True)
        self.model.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        return self.communication.load_state_dict(state["communication"])


def everyone(tensor: Tensor) -> list[Tensor]:
    """Return `tensor` of every rank."""
    gathered = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, tensor.contiguous())
    return gathered


def assert_ranks_identical(run: Run) -> None:
    """Fail unless all ranks hold the same finite parameters, to the bit, once they are made equal."""
    run.communication.synchronise()
    own = run.parameters()
    assert torch.isfinite(own).all(), "parameters are not finite"
    assert all(torch.equal(other, own) for other in everyone(own)), "ranks differ"


def for_each_method(check: Callable[[str], None], methods: Sequence[str] = OWN_METHODS) -> None:
    """Run `check` with each of `methods`; what fails names its method."""
    for method in methods:
        try:
            check(method)
        except AssertionError as error:
            raise AssertionError(f"{method}: {error}") from error


def hooked(run: Run) -> HookedCommunication:
    """Return the communication of a run with a method of Gradwire's own."""
    assert isinstance(run.communication, HookedCommunication)
    return run.communication
