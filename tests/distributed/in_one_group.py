"""Forms one process group for several plans, so that a launcher starts once; each plan is checked as usual."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gradwire.train.process_group import begin_process_group, choose_device, end_process_group, leave
from gradwire.train.reading import read_plan
from gradwire.train.setting import Setting, check_world_size, read_place


def settings_in_one_group() -> Iterator[tuple[Setting, Any]]:
    """Give the setting of each folder on the command line and this rank's device; the process ends after the last."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=Path)
    # The deepspeed launcher may add it.
    parser.add_argument("--local_rank", type=int)
    folders = parser.parse_args().folders
    place = read_place(os.environ)
    first, _ = read_plan(folders[0])
    device = choose_device(first.world, place)
    begin_process_group(first.world, place, device)
    for folder in folders:
        plan, _ = read_plan(folder)
        check_world_size(plan, place, os.environ)
        yield Setting(plan=plan, folder=folder, place=place), device
    end_process_group()
    leave(0)
