"""Trains a tiny model with the real Lightning and a clock that only the model moves; prints what was metered."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import pytorch_lightning
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from torch.utils.data import DataLoader

from gradwire.integrations.lightning import GradwireCallback

LONGEST = 8


class Clock:
    """Seconds that pass when told so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Model(pytorch_lightning.LightningModule):
    """A training pass takes a second, one of validation a hundred, a checkpoint a thousand."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(16, 1)

    def training_step(self, batch: dict[str, torch.Tensor], _number: int) -> torch.Tensor:
        clock.now += 1.0
        return self.table(batch["input_ids"]).square().mean()

    def validation_step(self, _batch: dict[str, torch.Tensor], _number: int) -> None:
        clock.now += 100.0

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        clock.now += 1000.0

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Saver(pytorch_lightning.Callback):
    """Saves after a validation, while it is left out."""

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            trainer.save_checkpoint(Path(trainer.default_root_dir) / "validated.ckpt")


def pad(lengths: list[int]) -> dict[str, torch.Tensor]:
    """A batch of sequences of these lengths; a wait of a quarter second."""
    clock.now += 0.25
    tokens = torch.tensor([[1] * length + [0] * (LONGEST - length) for length in lengths])
    return {"input_ids": tokens, "attention_mask": tokens}


def fit(
    folder: Path, steps: int, ranks: int, *, resume_from: Path | None = None, earlier: dict[str, Any] | None = None
) -> tuple[GradwireCallback, Any]:
    """Train until `steps` optimizer steps have been made."""
    torch.manual_seed(0)
    callback = GradwireCallback(warmup_steps=1, clock=clock)
    callback.load_state_dict(earlier or {})
    trainer = pytorch_lightning.Trainer(
        accelerator="cpu",
        devices=ranks,
        strategy="ddp" if ranks > 1 else "auto",
        max_steps=steps,
        accumulate_grad_batches=2,
        val_check_interval=4,
        check_val_every_n_epoch=None,
        log_every_n_steps=2,
        logger=CSVLogger(folder, name="", version=""),
        callbacks=[ModelCheckpoint(folder, every_n_train_steps=2, save_top_k=-1, filename="{step}"), Saver(), callback],
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = DataLoader([1 + number % LONGEST for number in range(32 * ranks)], batch_size=2, collate_fn=pad)
    validation = DataLoader([1, 2], batch_size=1, collate_fn=pad)
    trainer.fit(Model(), loader, validation, ckpt_path=resume_from, weights_only=False)
    return callback, trainer


clock = Clock()


def main() -> None:
    folder, ranks = Path(sys.argv[1]), int(os.environ.get("WORLD_SIZE", "1"))
    callback, trainer = fit(folder, 4, ranks)
    meter = callback.meter
    found: dict[str, Any] = {
        "step_seconds": meter.step_seconds,
        "samples": meter.samples,
        "tokens": meter.tokens,
        "slots": meter.slots,
        "excluded_seconds": meter.paused_seconds,
        "is_restored": "save_checkpoint" not in vars(trainer),
    }
    if ranks == 1:
        clock.now += 5000.0
        resumed, _ = fit(folder / "resumed", 6, ranks, resume_from=folder / "step=2.ckpt")
        other, _ = fit(folder / "other", 2, ranks, earlier={**callback.state_dict(), "world_size": 2})
        found["of_another_size"] = other.meter.step_seconds
        found["resumed"] = {"step_seconds": resumed.meter.step_seconds, "timed": resumed.meter.timed}
    (folder / f"found-{trainer.global_rank}.json").write_text(json.dumps(found), encoding="utf-8")
    # A rank that aborts as Python leaves has the other one ended, which is to have written by then.
    if torch.distributed.is_initialized():
        torch.distributed.barrier()


main()
