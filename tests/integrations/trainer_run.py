"""Trains a tiny random GPT-2 with the real Trainer and a clock that only the model moves; prints what was metered."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from gradwire.integrations.transformers import GradwireCallback

LONGEST = 8
SEQUENCES = 16


class Sequences(Dataset[list[int]]):
    """Sequence number n has 1 + n % 8 tokens."""

    def __len__(self) -> int:
        return SEQUENCES

    def __getitem__(self, number: int) -> list[int]:
        return [1] * (1 + number % LONGEST)


def pad(sequences: list[list[int]]) -> dict[str, torch.Tensor]:
    """Pad to the longest there is; a wait of a quarter second."""
    clock.now += 0.25
    tokens = torch.tensor([sequence + [0] * (LONGEST - len(sequence)) for sequence in sequences])
    return {"input_ids": tokens, "attention_mask": tokens, "labels": tokens}


class Clock:
    """Seconds that pass when told so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Saver(TrainerCallback):
    """A checkpoint takes a thousand seconds."""

    def on_save(self, *_: Any, **__: Any) -> None:
        clock.now += 1000.0


def pass_time(model: Any, _arguments: Any) -> None:
    """A training pass takes a second, an evaluating one a hundred."""
    clock.now += 1.0 if model.training else 100.0


clock = Clock()


def main() -> None:
    folder = Path(sys.argv[1])
    torch.manual_seed(0)
    config = GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=16, n_positions=LONGEST)
    callback = GradwireCallback(warmup_steps=1, clock=clock)
    model = GPT2LMHeadModel(config)
    model.register_forward_pre_hook(pass_time)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(folder),
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=2,
            max_steps=4,
            logging_steps=2,
            eval_strategy="steps",
            eval_steps=2,
            save_strategy="steps",
            save_steps=2,
            dataloader_pin_memory=False,
        ),
        train_dataset=Sequences(),
        eval_dataset=Sequences(),
        data_collator=pad,
        callbacks=[Saver(), callback],
    )
    trainer.train()
    meter = callback.meter
    found = {
        "log": trainer.state.log_history,
        "step_seconds": meter.step_seconds,
        "samples": meter.samples,
        "tokens": meter.tokens,
        "slots": meter.slots,
        "excluded_seconds": meter.paused_seconds,
    }
    # As after a call of train() that ended with an error: nothing is counted twice.
    hooks = len(model._forward_pre_hooks)
    for _ in range(2):
        callback.on_train_begin(trainer.args, trainer.state, trainer.control, model=model)
    found["hooks"] = len(model._forward_pre_hooks) - hooks
    rank = os.environ.get("RANK", "0")
    (folder / f"found-{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    # A rank that aborts as Python leaves has the other one ended, which is to have written by then.
    if torch.distributed.is_initialized():
        torch.distributed.barrier()


main()
