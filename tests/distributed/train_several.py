"""Trains several plans one after another in one process group, to save starts; run under a real launcher.

Each plan goes through the same functions as in `python -m gradwire.train`.
"""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path

os.environ["DS_ACCELERATOR"] = "cpu"

import torch
from in_one_group import settings_in_one_group

from gradwire.train.run import train_in_group


def forget_accelerate(launched_with_deepspeed: str | None) -> None:
    """Let the next plan build an Accelerator of its own; Accelerate keeps one state per process."""
    from accelerate.state import AcceleratorState, GradientState
    from transformers.integrations.deepspeed import unset_hf_deepspeed_config

    # The Trainer's, after which transformers would shard every model under ZeRO 3.
    unset_hf_deepspeed_config()
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    os.environ.pop("ACCELERATE_USE_DEEPSPEED", None)
    if launched_with_deepspeed is not None:
        os.environ["ACCELERATE_USE_DEEPSPEED"] = launched_with_deepspeed


def set_environment(folder: Path) -> None:
    """Have the variables that the plan's own launch.sh would set, and none that another plan's did."""
    report = json.loads((folder / "lowering.json").read_bytes())
    for name in [each for each in os.environ if each.startswith(("ACCELERATE_USE_CPU", "ACCELERATE_DYNAMO_"))]:
        del os.environ[name]
    os.environ.update(report["environment"])


launched_with_deepspeed = os.environ.get("ACCELERATE_USE_DEEPSPEED")
for setting, device in settings_in_one_group():
    set_environment(setting.folder)
    train_in_group(setting, device, setting.folder)
    gc.collect()
    # What one plan's blocks were compiled for must not count against the next one's.
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    if setting.plan.backend in ("accelerate", "trainer"):
        forget_accelerate(launched_with_deepspeed)
