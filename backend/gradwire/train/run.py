"""One rank's whole run, from the device to the written measurement."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch.distributed

from gradwire.documents.measurement_schema import Batches, Measurement
from gradwire.documents.plan_schema import Plan
from gradwire.errors import UsageError
from gradwire.measure.hardware import cpu_name, hardware
from gradwire.measure.matmul_peak import RunPeak
from gradwire.measure.measurement import build_measurement, write_measurement
from gradwire.measure.nvml import EnergyCounter, device_facts
from gradwire.measure.steps import STEPS_FILE, StepWriter
from gradwire.measure.time_split import Collectives, RankLaps, split_time
from gradwire.measure.totals import RankRecord, totals_of
from gradwire.train.checkpoint import CHECKPOINTS, Resumed, load_checkpoint, save_checkpoint
from gradwire.train.communication.roll_call import begin_roll_call
from gradwire.train.compilation import graphs_note
from gradwire.train.data import order_samples, read_text
from gradwire.train.engines.engine import Engine, build_engine
from gradwire.train.facts import device_name, device_uuid, read_versions, record_with_memory
from gradwire.train.feed import Feed
from gradwire.train.loop import Trained, log, train
from gradwire.train.process_group import begin_process_group, check_agreement, choose_device, end_process_group
from gradwire.train.setting import Setting
from gradwire.train.shared_memory import release_deepspeed_buffers
from gradwire.train.stopwatch import Stopwatch
from gradwire.train.tracking import TrackedSteps, open_run_trackers
from gradwire.train.training_state import State

_NO_CHECKPOINTS = (
    "--save-every and --resume: Gradwire saves the runs of its native backend; "
    "in a script of your own use accelerator.save_state or DeepSpeed's save_checkpoint"
)


def run(setting: Setting, out_folder: Path) -> None:
    """Form the process group, train the setting's plan on this rank, and end the group."""
    device = choose_device(setting.plan.world, setting.place)
    # fully_shard leaves offloaded gradients in the machine's memory, where their norm is taken.
    data = setting.plan.recipe.parallelism.data
    averages_on_cpu = data.strategy == "fsdp" and data.offload.parameters == "cpu"
    begin_process_group(setting.plan.world, setting.place, device, averages_on_cpu=averages_on_cpu)
    begin_roll_call(torch.distributed.group.WORLD)
    train_in_group(setting, device, out_folder)
    end_process_group()


def train_in_group(setting: Setting, device: Any, out_folder: Path) -> None:
    """Train the setting's plan in the process group; rank 0 writes steps.jsonl and measurement.json."""
    plan, place = setting.plan, setting.place
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    sequence_length = setting.model.sequence_length
    text = read_text(plan.recipe.data.path)
    order = order_samples(text, sequence_length=sequence_length, seed=plan.recipe.training.seed, batch=plan.batch)
    check_agreement({"the plan": repr(plan), "the text": text.checksum()})
    stopwatch = Stopwatch(device, time.perf_counter)
    feed = Feed(text=text, order=order, sequence_length=sequence_length, device=device)
    energy = EnergyCounter(device_uuid(device))
    trained = _train(setting, feed, stopwatch, out_folder, energy)
    gathered = _gather((replace(record_with_memory(trained.meter, device), energy=energy.read()), trained.laps))
    if place.rank == 0:
        notes = [
            f"text: {len(text.content)} bytes of {text.origin}",
            *trained.notes,
            *_notes_on_split(plan, trained.collectives),
        ]
        if plan.recipe.training.compile:
            notes.append(graphs_note())
        if device.type == "cpu":
            notes.append(f"{torch.get_num_threads()} compute thread(s) in each process")
        measurement = _measure(setting, trained, gathered, started_at, notes, device)
        file = out_folder / "measurement.json"
        write_measurement(file, measurement)
        world = f"{plan.world.world_size} process{'' if plan.world.world_size == 1 else 'es'}"
        log(f"trained on {world} ({plan.backend}, {plan.world.device}); measurement: {file}")


def _resume(setting: Setting, engine: Engine, device: Any) -> Resumed:
    if setting.resume is None:
        return Resumed(step=0, notes=())
    state = _state_of(engine)
    resumed = load_checkpoint(setting.resume, state, setting.plan, setting.place, device=device)
    check_agreement({"the checkpoint": resumed.step})
    state.continue_from(resumed.step)
    if setting.place.rank == 0:
        log("; ".join(resumed.notes))
    return resumed


def _saver(setting: Setting, engine: Engine, device: Any, out_folder: Path) -> Callable[[int], None] | None:
    """Return what is called after each step with the number of steps taken, None where nothing is saved."""
    every = setting.save_every
    if every is None:
        return None
    state, last = _state_of(engine), setting.plan.recipe.training.max_steps

    def save(steps: int) -> None:
        if steps % every == 0 or steps == last:
            folder = out_folder / CHECKPOINTS
            save_checkpoint(folder, state, setting.plan, setting.place, step=steps, device=device)

    return save


def _state_of(engine: Engine) -> State:
    if engine.state is None:
        raise UsageError(_NO_CHECKPOINTS)
    return engine.state


def _open_writer(
    setting: Setting, device: Any, folder: Path, stack: ExitStack, *, after: int
) -> StepWriter | TrackedSteps:
    writer = stack.enter_context(StepWriter(folder / STEPS_FILE, after=after))
    if not setting.plan.recipe.measurement.trackers:
        return writer
    return TrackedSteps(
        setting.plan,
        writer,
        stack.enter_context(open_run_trackers(setting.plan, folder)),
        device_name=device_name(device) or cpu_name(),
        measured_peak=_run_peak(setting, device),
    )


def _run_peak(setting: Setting, device: Any) -> RunPeak | None:
    if setting.measured_peak is None:
        return None
    return RunPeak(peak=setting.measured_peak, threads=torch.get_num_threads() if device.type == "cpu" else None)


def _train(setting: Setting, feed: Feed, stopwatch: Stopwatch, out_folder: Path, energy: EnergyCounter) -> Trained:
    with ExitStack() as stack:
        device, is_first = feed.device, setting.place.rank == 0
        if setting.plan.backend == "trainer":
            # Its loop is transformers' own; imported here, because Accelerate comes with it.
            from gradwire.train.trainer_loop import train_with_trainer

            if setting.resume is not None or setting.save_every is not None:
                raise UsageError(_NO_CHECKPOINTS)
            writer = _open_writer(setting, device, out_folder, stack, after=0) if is_first else None
            return train_with_trainer(setting, feed, stopwatch, writer=writer, energy=energy)
        engine = build_engine(setting, device, stopwatch.lap)
        release_deepspeed_buffers()
        resumed = _resume(setting, engine, device)
        if engine.communication is not None:
            stack.callback(engine.communication.close)
        writer = _open_writer(setting, device, out_folder, stack, after=resumed.step) if is_first else None
        trained = train(
            setting.plan,
            engine,
            feed,
            stopwatch,
            writer=writer,
            energy=energy,
            first_step=resumed.step,
            save=_saver(setting, engine, device, out_folder),
        )
        return replace(trained, notes=(*resumed.notes, *trained.notes))


def _notes_on_split(plan: Plan, collectives: Collectives) -> list[str]:
    notes = []
    if collectives == "stopped":
        notes.append(
            "time split: communication is what the passes took beyond those of a few more steps that sent no gradient, "
            "made after the last step; it includes compressing"
        )
    if collectives == "inseparable":
        notes.append(
            "time split: communication cannot be turned off here, so compute contains it, and the wait for a "
            "straggler; an optimizer that gathers weights or norms contains that"
        )
    if plan.pipeline is not None:
        notes.append(
            "time split: the bubble is measured, as the time in which a stage ran no chunk; a stage with more work "
            "than the median one counts as a straggler"
        )
    return notes


def _gather(mine: tuple[RankRecord, RankLaps]) -> list[tuple[RankRecord, RankLaps]]:
    gathered: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(gathered, mine)
    return gathered


def _measure(
    setting: Setting,
    trained: Trained,
    gathered: list[tuple[RankRecord, RankLaps]],
    started_at: str,
    notes: list[str],
    device: Any,
) -> Measurement:
    history, records = trained.history, [record for record, _ in gathered]
    timed = totals_of(records, warmup_steps=setting.plan.recipe.measurement.warmup_steps).timed
    laps = [each.of(timed) for _, each in gathered]
    return build_measurement(
        setting.plan,
        records,
        losses=history.losses,
        gradient_norms=history.gradient_norms,
        learning_rates=history.learning_rates,
        batches=Batches(sequences=history.sequences, labels=history.labels, text_checksums=history.text_checksums),
        started_at=started_at,
        versions=read_versions(),
        hardware=hardware(device_name(device), device=device_facts(device_uuid(device))),
        notes=notes,
        traffic=history.traffic,
        micro_steps=[[seconds for step in each.micro_steps for seconds in step] for each in laps],
        measured_peak=_run_peak(setting, device),
        buckets=trained.buckets,
        time_split=split_time(laps, trained.collectives),
    )
