"""Trains through `from_recipe`, saves with Accelerate, trains on, loads, and trains the same steps again."""

from __future__ import annotations

import sys

import torch

from gradwire.accelerate import from_recipe

run = from_recipe(
    "cpu/ddp",
    overrides=[
        "communication.compression={method: powersgd, start_step: 2, min_compression_rate: 1}",
        "training.gradient_accumulation=1",
    ],
)
torch.manual_seed(0)
layers = [layer for _ in range(3) for layer in (torch.nn.Linear(32, 32), torch.nn.Tanh())]
model = run.adapt(torch.nn.Sequential(*layers))
optimizer = run.optimizer(model.parameters())
model, optimizer = run.accelerator.prepare(model, optimizer)


def train(first: int, last: int) -> list[float]:
    losses = []
    for step in range(first, last):
        generator = torch.Generator().manual_seed(10 * step + run.accelerator.process_index)
        with run.accumulate(model):
            loss = model(torch.randn(8, 32, generator=generator)).square().mean()
            run.accelerator.backward(loss)
            run.clip(model)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses


train(0, 5)
run.accelerator.save_state(sys.argv[1])
once = train(5, 9)
run.accelerator.load_state(sys.argv[1])
again = train(5, 9)
assert once == again, (once, again)
assert run.notes == [], run.notes
run.accelerator.print("trained the same again")
run.end()
