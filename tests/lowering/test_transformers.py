"""A DeepSpeed file that was written here passes as `TrainingArguments(deepspeed=...)` when the arguments agree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gradwire.artifact import write_artifact
from tests.lowering.drawing import STRATEGY, lowered

pytest.importorskip("transformers", reason="its own DeepSpeed checks are run")
pytest.importorskip("deepspeed", reason="transformers asks for it")

# transformers collects disagreements while the arguments are built and raises them before training.
CHECK = """
import sys
from transformers import TrainingArguments
def check(learning_rate):
    arguments = TrainingArguments(
        output_dir=sys.argv[2], deepspeed=sys.argv[1], use_cpu=True, report_to=[], per_device_train_batch_size=4,
        gradient_accumulation_steps=2, max_grad_norm=0.0, learning_rate=learning_rate, weight_decay=0.1,
        adam_beta1=0.9, adam_beta2=0.95, adam_epsilon=1e-6, bf16=True)
    arguments.hf_deepspeed_config.trainer_config_finalize(arguments, None, 10)
check(0.001)
try:
    check(0.002)
except ValueError as error:
    sys.stderr.write(f"refused: {error}")
"""


def test_transformers_takes_the_file_and_notices_another_learning_rate(tmp_path: Path) -> None:
    values = {
        STRATEGY: "zero2",
        "training.num_gpus": 1,
        "training.batch_size_per_gpu": 4,
        "training.gradient_accumulation": 2,
        "training.learning_rate": 0.001,
        "training.weight_decay": 0.1,
        "training.betas": [0.9, 0.95],
        "training.epsilon": 1e-6,
        "training.precision": "bf16-mixed",
    }
    write_artifact(lowered("deepspeed", values, device="cpu"), tmp_path / "out")
    ended = subprocess.run(
        [sys.executable, "-c", CHECK, str(tmp_path / "out" / "deepspeed.json"), str(tmp_path / "runs")],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"},
    )
    assert ended.returncode == 0, ended.stderr
    assert "ds optimizer.params.lr=0.001 vs hf learning_rate=0.002" in ended.stderr
    assert ended.stderr.count("- ds ") == 1
