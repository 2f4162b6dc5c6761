"""Trains your own model with DeepSpeed as a recipe says.

gradwire lower cpu/zero2 --backend deepspeed --out OUT
DS_ACCELERATOR=cpu deepspeed --num_gpus 2 examples/deepspeed_script.py OUT/deepspeed.json
"""

import sys
from pathlib import Path

import deepspeed
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
config = GPT2Config(vocab_size=256, n_embd=64, n_layer=2, n_head=4, bos_token_id=None, eos_token_id=None)
model = GPT2LMHeadModel(config)
# Optimizer, precision, ZeRO stage, accumulation and clipping are in the file.
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=sys.argv[-1])

text = torch.frombuffer(bytearray(Path(torch.__file__).read_bytes()), dtype=torch.uint8).long()
samples = text.unfold(0, 64, 16)[torch.randperm(len(text) // 16 - 3)]
# Each rank takes every world_size-th batch.
batches = samples.split(engine.train_micro_batch_size_per_gpu())[torch.distributed.get_rank() :: engine.dp_world_size]

for micro_step, tokens in enumerate(batches[: 20 * engine.gradient_accumulation_steps()]):
    loss = engine(input_ids=tokens.to(engine.device), labels=tokens.to(engine.device)).loss
    engine.backward(loss)
    engine.step()
    if torch.distributed.get_rank() == 0:
        print(f"micro-step {micro_step}  loss {loss.item():.4f}", flush=True)  # noqa: T201
torch.distributed.barrier()
torch.distributed.destroy_process_group()
