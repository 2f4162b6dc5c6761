"""Trains plans one after another in one process group, each whole with checkpoints, and again from the first one.

A folder that holds `resume-from` is trained only from the checkpoint which that file names.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from in_one_group import settings_in_one_group

from gradwire.train.run import train_in_group

for setting, device in settings_in_one_group():
    named = setting.folder / "resume-from"
    if named.exists():
        source = Path(named.read_text(encoding="utf-8"))
        train_in_group(replace(setting, resume=source), device, setting.folder)
        continue
    train_in_group(replace(setting, save_every=4), device, setting.folder)
    source = setting.folder / "checkpoints" / "step-00000004"
    train_in_group(replace(setting, resume=source), device, setting.folder / "resumed")
