"""A user's script with the Trainer: evaluation and checkpoints on the way."""

import os
import sys

import torch
import torch.distributed
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(0)
rows = [{"input_ids": tokens, "labels": tokens} for tokens in torch.randint(16, (64, 8))]
trainer = Trainer(
    model=GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=16, n_positions=8)),
    args=TrainingArguments(
        output_dir=sys.argv[1],
        use_cpu=True,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        max_steps=8,
        eval_strategy="steps",
        eval_steps=3,
        save_strategy="steps",
        save_steps=5,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    ),
    train_dataset=rows,
    eval_dataset=rows,
)
trainer.train()
# In one write: torchrun's workers do not buffer, and print writes each word by itself, among those of the other rank.
os.write(1, f"rank {os.environ.get('RANK')} done\n".encode())
# Whoever leaves first may abort as Python leaves, and its launcher would end the other one before it said so.
torch.distributed.barrier()
