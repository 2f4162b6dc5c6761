"""Trains plans one after another in one process group, each whole with checkpoints, and again from the first one."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from gradwire.train.process_group import begin_process_group, choose_device, end_process_group, leave
from gradwire.train.reading import read_plan
from gradwire.train.run import train_in_group
from gradwire.train.setting import Setting, check_world_size, read_place


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=Path)
    folders = parser.parse_args().folders
    place = read_place(os.environ)
    first, _ = read_plan(folders[0])
    device = choose_device(first.world, place)
    begin_process_group(first.world, place, device)
    for folder in folders:
        plan, _ = read_plan(folder)
        check_world_size(plan, place, os.environ)
        setting = Setting(plan=plan, folder=folder, place=place, save_every=5)
        train_in_group(setting, device, folder)
        source = folder / "checkpoints" / "step-00000005"
        train_in_group(replace(setting, save_every=None, resume=source), device, folder / "resumed")
    end_process_group()
    leave(0)


main()
