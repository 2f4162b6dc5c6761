"""Trains your own model with the Transformers Trainer on DeepSpeed as a recipe says.

gradwire lower cpu/zero2 --backend deepspeed --out OUT
DS_ACCELERATOR=cpu torchrun --nproc_per_node 2 examples/trainer_script.py OUT/deepspeed.json
"""

import json
import sys
import tempfile
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

config = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
optimizer = config["optimizer"]["params"]
arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    deepspeed=sys.argv[1],
    # The file has no "auto", so the Trainer's own arguments repeat its values; it refuses others.
    per_device_train_batch_size=config["train_micro_batch_size_per_gpu"],
    gradient_accumulation_steps=config["gradient_accumulation_steps"],
    max_grad_norm=config["gradient_clipping"],
    learning_rate=optimizer["lr"],
    weight_decay=optimizer["weight_decay"],
    lr_scheduler_type="constant",
    bf16=config["bf16"]["enabled"],
    # Without it the Trainer looks for a GPU, finds none, and each process trains alone.
    use_cpu=not torch.cuda.is_available(),
    max_steps=20,
    logging_steps=1,
    save_strategy="no",
    report_to="none",
    seed=0,
)
if (
    arguments.world_size * arguments.train_batch_size * arguments.gradient_accumulation_steps
    != config["train_batch_size"]
):
    raise SystemExit(f"{sys.argv[1]} is for another number of processes than {arguments.world_size}")

text = torch.frombuffer(bytearray(Path(torch.__file__).read_bytes()), dtype=torch.uint8).long()
samples = [{"input_ids": tokens, "labels": tokens} for tokens in text.unfold(0, 64, 16)]
model_config = GPT2Config(vocab_size=256, n_positions=64, n_embd=64, n_layer=2, n_head=4, bos_token_id=None)
model = GPT2LMHeadModel(model_config)
trainer = Trainer(model=model, args=arguments, train_dataset=samples)
trainer.train()
torch.distributed.barrier()
torch.distributed.destroy_process_group()
