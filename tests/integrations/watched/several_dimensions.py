"""A user's script on a 2 x 2 device mesh: data and tensor parallel with sequence-parallel norms, then context parallel.

Each rank writes what it counted itself to FOLDER/counted-RANK.json.
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from gradwire.integrations.device import DeviceMeter
from gradwire.integrations.figures import figures
from gradwire.integrations.parallel import counts_here
from gradwire.integrations.pass_counter import PassCounter

BATCH, LENGTH, VOCABULARY = 3, 8, 16


class Block(torch.nn.Module):
    """A residual block whose norm works on a slice of the sequence, and its products on a slice of the width."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.wide = torch.nn.Linear(8, 32)
        self.narrow = torch.nn.Linear(32, 8)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.narrow(self.wide(self.norm(hidden)).relu())


class Net(torch.nn.Module):
    """Its table lies on the mesh of data alone, its blocks on both dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(VOCABULARY, 8)
        self.blocks = torch.nn.ModuleList([Block(), Block()])
        self.output = torch.nn.Linear(8, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.table(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return self.output(hidden)


torch.manual_seed(0)
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
model = Net()
plan = {
    "blocks.0": PrepareModuleInput(
        input_layouts=(Replicate(),), desired_input_layouts=(Shard(1),), use_local_output=True
    ),
    "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
}
for number in range(len(model.blocks)):
    plan[f"blocks.{number}.norm"] = SequenceParallel()
    plan[f"blocks.{number}.wide"] = ColwiseParallel(input_layouts=Shard(1))
    plan[f"blocks.{number}.narrow"] = RowwiseParallel(output_layouts=Shard(1))
parallelize_module(model, mesh["tp"], plan)
fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

meter = DeviceMeter("cpu", warmup_steps=1, counts=counts_here(mesh))
torch.manual_seed(mesh.get_local_rank("dp"))
meter.start()
for _ in range(6):
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH))
    loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    meter.step(samples=BATCH, tokens=tokens.numel())
result = meter.result()
seen = figures(result)

# Each rank has a half of every sequence of its group, and counts that half.
split = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "cp"))
counter = PassCounter(plain := torch.nn.Embedding(VOCABULARY, 8), mesh=split)
half = split.get_local_rank("cp") * LENGTH // 2
plain(torch.randint(VOCABULARY, (BATCH, LENGTH))[:, half : half + LENGTH // 2])
slices = counter.take()

found = {
    "samples": result.samples,
    "tokens": result.tokens,
    "rates": seen,
    "slices": [slices.samples, slices.tokens],
    "loss": float(loss),
}
Path(sys.argv[1], f"counted-{rank}.json").write_text(json.dumps(found), encoding="utf-8")
torch.distributed.barrier()
torch.distributed.destroy_process_group()
sys.stdout.flush()
os._exit(0)
