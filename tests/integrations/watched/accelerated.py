"""A user's script with Accelerate: accumulation, sequences of different lengths."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel

accelerator = Accelerator(gradient_accumulation_steps=2)
torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=16, n_positions=8))
rows = [
    {"input_ids": torch.tensor([1] * length + [0] * (8 - length)), "attention_mask": torch.arange(8) < length}
    for length in [4, 8] * 24
]
model, optimizer, loader = accelerator.prepare(
    model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(rows, batch_size=2)
)
for batch in loader:
    with accelerator.accumulate(model):
        accelerator.backward(model(**batch, labels=batch["input_ids"]).loss)
        optimizer.step()
        optimizer.zero_grad()
# Whoever leaves first may abort as Python leaves, and its launcher would end the other one in its last step.
accelerator.wait_for_everyone()
accelerator.end_training()
