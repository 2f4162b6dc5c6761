"""Trains your own model with the Transformers Trainer as a recipe says: no value of it is repeated here.

gradwire lower cpu/zero2 --backend trainer --out OUT
torchrun --nproc_per_node 2 examples/trainer_script.py OUT
"""

import sys
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer

from gradwire.integrations.trainer import follow_recipe, training_arguments

folder = sys.argv[1]
arguments = training_arguments(folder, logging_steps=1, save_strategy="no", report_to="none")

text = torch.frombuffer(bytearray(Path(torch.__file__).read_bytes()), dtype=torch.uint8).long()
samples = [{"input_ids": tokens, "labels": tokens} for tokens in text.unfold(0, 64, 16)]
model_config = GPT2Config(vocab_size=256, n_embd=64, n_layer=2, n_head=4, bos_token_id=None, eos_token_id=None)
trainer = Trainer(model=GPT2LMHeadModel(model_config), args=arguments, train_dataset=samples)
follow_recipe(trainer, folder)
trainer.train()
torch.distributed.barrier()
torch.distributed.destroy_process_group()
