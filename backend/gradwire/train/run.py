"""One rank's whole run, from the device to the written measurement."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch.distributed

from gradwire.documents.measurement_schema import Measurement
from gradwire.measure.hardware import hardware
from gradwire.measure.measurement import RankRecord, build_measurement, write_measurement
from gradwire.train.data import order_samples, read_text
from gradwire.train.engines.engine import build_engine
from gradwire.train.facts import device_name, read_versions, record_with_memory
from gradwire.train.loop import History, log, train
from gradwire.train.process_group import begin_process_group, check_agreement, choose_device, end_process_group
from gradwire.train.setting import Setting


def run(setting: Setting, out_folder: Path) -> None:
    """Form the process group, train the setting's plan on this rank, and end the group."""
    device = choose_device(setting.plan.world, setting.place)
    begin_process_group(setting.plan.world, setting.place, device)
    train_in_group(setting, device, out_folder)
    end_process_group()


def train_in_group(setting: Setting, device: Any, out_folder: Path) -> None:
    """Train the setting's plan in the process group; rank 0 writes `out_folder`/measurement.json at the end."""
    plan, place = setting.plan, setting.place
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    sequence_length = setting.model.sequence_length
    text = read_text(plan.recipe.data.path)
    order = order_samples(text, sequence_length=sequence_length, seed=plan.recipe.training.seed, batch=plan.batch)
    check_agreement({"the plan": repr(plan), "the text": text.checksum()})
    engine = build_engine(setting, device)
    try:
        meter, history = train(
            plan,
            engine,
            text=text,
            order=order,
            sequence_length=sequence_length,
            device=device,
            is_first_rank=place.rank == 0,
        )
    finally:
        if engine.communication is not None:
            engine.communication.close()
    records = _gather(record_with_memory(meter, device))
    if place.rank == 0:
        notes = [f"text: {len(text.content)} bytes of {text.origin}", *engine.notes]
        if device.type == "cpu":
            notes.append(f"{torch.get_num_threads()} compute thread(s) in each process")
        measurement = _measure(setting, records, history, started_at, notes, device)
        file = out_folder / "measurement.json"
        write_measurement(file, measurement)
        log(f"measurement: {file}")


def _gather(record: RankRecord) -> list[RankRecord]:
    records: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(records, record)
    return records


def _measure(
    setting: Setting, records: list[RankRecord], history: History, started_at: str, notes: list[str], device: Any
) -> Measurement:
    return build_measurement(
        setting.plan,
        records,
        losses=history.losses,
        gradient_norms=history.gradient_norms,
        started_at=started_at,
        versions=read_versions(),
        hardware=hardware(device_name(device)),
        notes=notes,
        traffic=history.traffic,
    )
