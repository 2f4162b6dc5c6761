"""Trains several plans one after another in one process group, to save starts; run under a real launcher.

Each plan goes through the same functions as in `python -m gradwire.train`.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
from pathlib import Path

os.environ["DS_ACCELERATOR"] = "cpu"

from gradwire.train.process_group import begin_process_group, choose_device, end_process_group, leave
from gradwire.train.reading import read_plan
from gradwire.train.run import train_in_group
from gradwire.train.setting import Setting, check_world_size, read_place


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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--local_rank", type=int)
    folders = parser.parse_args().folders
    place = read_place(os.environ)
    launched_with_deepspeed = os.environ.get("ACCELERATE_USE_DEEPSPEED")
    first, _ = read_plan(folders[0])
    device = choose_device(first.world, place)
    begin_process_group(first.world, place, device)
    for folder in folders:
        plan, _ = read_plan(folder)
        check_world_size(plan, place, os.environ)
        set_environment(folder)
        train_in_group(Setting(plan=plan, folder=folder, place=place), device, folder)
        gc.collect()
        if plan.backend in ("accelerate", "trainer"):
            forget_accelerate(launched_with_deepspeed)
    end_process_group()
    leave(0)


main()
