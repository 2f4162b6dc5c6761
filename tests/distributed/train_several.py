"""Trains several plans one after another in one process group, to save starts; run under a real launcher.

Each plan goes through the same functions as in `python -m gradwire.train`.
"""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path

os.environ["DS_ACCELERATOR"] = "cpu"

from in_one_group import settings_in_one_group

from gradwire.train.run import train_in_group


def forget_accelerate(launched_with_deepspeed: str | None) -> None:
    """Let the next plan build an Accelerator of its own; Accelerate keeps one state per process."""
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    os.environ.pop("ACCELERATE_USE_DEEPSPEED", None)
    if launched_with_deepspeed is not None:
        os.environ["ACCELERATE_USE_DEEPSPEED"] = launched_with_deepspeed


def set_environment(folder: Path) -> None:
    """Have the variables that the plan's own launch.sh would set, and none that another plan's did."""
    report = json.loads((folder / "lowering.json").read_bytes())
    if "ACCELERATE_USE_CPU" not in report["environment"]:
        os.environ.pop("ACCELERATE_USE_CPU", None)
    os.environ.update(report["environment"])


launched_with_deepspeed = os.environ.get("ACCELERATE_USE_DEEPSPEED")
for setting, device in settings_in_one_group():
    set_environment(setting.folder)
    train_in_group(setting, device, setting.folder)
    gc.collect()
    if setting.plan.backend in ("accelerate", "trainer"):
        forget_accelerate(launched_with_deepspeed)
