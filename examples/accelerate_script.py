"""Trains your own model with Accelerate as a recipe says.

gradwire lower cpu/ddp --backend accelerate --out OUT
accelerate launch --config_file OUT/accelerate.yaml examples/accelerate_script.py OUT
"""

import sys

import torch
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel

from gradwire.accelerate import from_recipe

run = from_recipe(sys.argv[1])
torch.manual_seed(0)
text = torch.from_file(torch.__file__, size=60_000, dtype=torch.uint8).long()
loader = DataLoader(text.unfold(0, 64, 16), batch_size=run.batch_size, shuffle=True)
config = GPT2Config(vocab_size=256, n_embd=64, n_layer=2, n_head=4, bos_token_id=None, eos_token_id=None)
model = run.adapt(GPT2LMHeadModel(config))
model, optimizer, loader = run.accelerator.prepare(model, run.optimizer(model.parameters()), loader)

for micro_step, tokens in zip(range(run.max_steps * run.gradient_accumulation), loader, strict=False):
    with run.accumulate(model):
        loss = model(input_ids=tokens, labels=tokens).loss
        run.accelerator.backward(loss)
        run.clip(model)
        optimizer.step()
        optimizer.zero_grad()
    run.accelerator.print(f"micro-step {micro_step}  loss {loss.item():.4f}")
run.end()
