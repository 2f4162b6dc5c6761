"""Trains plans one after another in one process group, each with the cause of slowness that its folder is named for."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gradwire.train.loop
import gradwire.train.model
from gradwire.train.process_group import begin_process_group, choose_device, end_process_group, leave
from gradwire.train.reading import read_plan
from gradwire.train.run import train_in_group
from gradwire.train.setting import Setting, check_world_size, read_place

SLEEP_SECONDS = 0.15


def slowed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` behind a sleep."""

    def call(*arguments: Any, **options: Any) -> Any:
        time.sleep(SLEEP_SECONDS)
        return function(*arguments, **options)

    return call


@contextmanager
def planted(cause: str, rank: int) -> Iterator[None]:
    """Slow down what `cause` names: reading samples on every rank, or forward passes on rank 1."""
    cut, forward = gradwire.train.loop.cut, gradwire.train.model.LossModel.forward
    if cause == "slow-loader":
        gradwire.train.loop.cut = slowed(cut)
    if cause == "straggler" and rank == 1:
        gradwire.train.model.LossModel.forward = slowed(forward)
    yield
    gradwire.train.loop.cut, gradwire.train.model.LossModel.forward = cut, forward


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
        with planted(folder.name, place.rank):
            train_in_group(Setting(plan=plan, folder=folder, place=place), device, folder)
    end_process_group()
    leave(0)


main()
