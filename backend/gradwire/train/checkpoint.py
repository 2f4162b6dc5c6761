"""Saves a run's state and takes it up again: weights, optimizer, gradient communication, random numbers, data position.

A checkpoint is a folder `step-N`: `shared.pt` holds what is equal on all ranks, `rank-R.pt` what belongs to one (where
ranks hold parts of the model, those too), and `complete.json`, written last on every machine and removed first, what it
is a checkpoint of. All are read as tensors and plain values (`weights_only`), never as code.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist

from gradwire.documents.plan_schema import Plan
from gradwire.errors import EnvironmentNotFit, UsageError
from gradwire.train.setting import Place
from gradwire.train.training_state import Saved, State

FORMAT_VERSION = 1
CHECKPOINTS = "checkpoints"
"""Folder of a run's checkpoints, in the run's own."""
_KEPT = 2
_COMPLETE, _SHARED = "complete.json", "shared.pt"


@dataclass(frozen=True, kw_only=True, slots=True)
class Resumed:
    """Where a run goes on: the number of steps already taken, and what a reader should know of it."""

    step: int
    notes: tuple[str, ...]


def save_checkpoint(folder: Path, state: State, plan: Plan, place: Place, *, step: int, device: Any) -> None:
    """Write the checkpoint of `step` steps below `folder` and remove all but the last two; all ranks call this.

    Local steps are synchronised first. Raises UsageError where the folder cannot be written.
    """
    state.make_ranks_equal()
    target = folder / f"step-{step:08d}"
    with _explained(target):
        target.mkdir(parents=True, exist_ok=True)
        if place.local_rank == 0:
            # An earlier run's checkpoint of this step stops being one before its first file is replaced.
            (target / _COMPLETE).unlink(missing_ok=True)
        dist.barrier()
        if place.rank == 0:
            _write(target / _SHARED, state.shared())
        _write(target / f"rank-{place.rank}.pt", {**state.own(), "random": _random_numbers(device)})
        dist.barrier()
        if place.local_rank == 0:
            about = {
                "format_version": FORMAT_VERSION,
                "step": step,
                "written_at": time.time(),
                "world_size": place.world_size,
                "form": state.form,
                "recipe": msgspec.to_builtins(plan.recipe),
            }
            # One machine or several may write here, which share the folder or do not.
            written = target / f".{_COMPLETE}-{place.rank}"
            written.write_text(json.dumps(about, sort_keys=True), encoding="utf-8")
            written.replace(target / _COMPLETE)
            _remove_all_but(_complete_ones(folder)[-_KEPT:], folder)
    dist.barrier()


def load_checkpoint(path: Path, state: State, plan: Plan, place: Place, *, device: Any) -> Resumed:
    """Take over the checkpoint at `path`: a `step-N` folder, or one that holds some, of which the newest counts.

    All ranks call this together, before the first step. With another number of ranks what they share is kept and
    the notes say what is not. Raises UsageError where there is no checkpoint of this model.
    """
    source = _newest(path)
    about = _read_about(source)
    _check_form(source, about, state)
    _check_recipe(source, about["recipe"], plan)
    if about["step"] >= plan.recipe.training.max_steps:
        raise UsageError(
            f"{source}: has taken {about['step']} steps, and training.max_steps is {plan.recipe.training.max_steps}: "
            "nothing is left to train; set max_steps higher"
        )
    saved = _saved(source, about["world_size"], place, whole_on=device if state.form == "whole" else None)
    notes = [f"resumed after step {about['step']} from {source.name}"]
    notes += state.load(saved)
    if saved.is_own:
        _set_random_numbers(saved.own["random"], device)
    else:
        notes.append(
            f"the checkpoint is of {about['world_size']} ranks, this run has {place.world_size}: random numbers start "
            "anew, and steps read other samples than they would have"
        )
    return Resumed(step=about["step"], notes=tuple(notes))


def _complete_ones(folder: Path) -> list[Path]:
    """Return the complete checkpoints below `folder`, in the order of writing: an earlier run may have gone further."""
    return sorted(
        (path.parent for path in folder.glob(f"step-*/{_COMPLETE}")), key=lambda path: (_written_at(path), path.name)
    )


def _written_at(source: Path) -> float:
    try:
        return float(json.loads((source / _COMPLETE).read_text(encoding="utf-8"))["written_at"])
    except (OSError, ValueError, TypeError, KeyError):
        # Another machine has just removed it, or it is not of this version, which is said where it is read.
        return 0.0


def _remove_all_but(kept: Sequence[Path], folder: Path) -> None:
    """Remove other checkpoints below `folder`, those too that a killed run left half written or half removed."""
    for old in folder.glob("step-*"):
        if old not in kept:
            (old / _COMPLETE).unlink(missing_ok=True)
            shutil.rmtree(old, ignore_errors=True)


def _newest(path: Path) -> Path:
    try:
        if (path / _COMPLETE).is_file():
            return path
        found = _complete_ones(path) or _complete_ones(path / CHECKPOINTS)
    except OSError as error:
        raise UsageError(f"{path}: cannot be looked into: {error.strerror}; name a folder that you may read") from None
    if not found:
        raise UsageError(f"{path}: holds no complete checkpoint; name a folder that --save-every wrote")
    return found[-1]


def _saved(source: Path, ranks: int, place: Place, *, whole_on: Any) -> Saved:
    """Return what the checkpoint of `ranks` ranks holds; `whole_on` is the device for models saved whole."""
    is_own = ranks == place.world_size
    own = source / f"rank-{place.rank}.pt"
    if not own.is_file():
        if is_own:
            raise EnvironmentNotFit(f"{own}: is missing; copy the whole checkpoint to every machine")
        own = source / "rank-0.pt"
    # Not those of another run that were there before: only as many as this checkpoint's ranks.
    others = [source / f"rank-{rank}.pt" for rank in range(ranks) if not (is_own and rank == place.rank)]
    return Saved(
        shared=_read(source / _SHARED, whole_on),
        own=_read(own, whole_on),
        is_own=is_own,
        others=lambda: (_read(file, whole_on) for file in others),
    )


def _read_about(source: Path) -> dict[str, Any]:
    try:
        about: dict[str, Any] = json.loads((source / _COMPLETE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{source / _COMPLETE}: cannot be read: {error}") from None
    found = about.get("format_version") if isinstance(about, dict) else None
    if found != FORMAT_VERSION:
        raise UsageError(f"{source}: is a checkpoint of format {found}; this version reads {FORMAT_VERSION}")
    return about


def _check_form(source: Path, about: Mapping[str, Any], state: State) -> None:
    """Raise UsageError where the checkpoint has a whole model and this run has parts, or the other way round."""
    found = about.get("form", "whole")
    if found != state.form:
        kinds = {"whole": "plain ddp", "split": "fsdp or a pipeline"}
        raise UsageError(
            f"{source}: was written under {kinds.get(found, found)}, and this run trains under {kinds[state.form]}; "
            "resume it under what it was written"
        )


def _check_recipe(source: Path, recipe: Mapping[str, Any], plan: Plan) -> None:
    """Raise UsageError where the checkpoint's weights or optimizer state are not this run's kind."""
    ours = msgspec.to_builtins(plan.recipe)
    needed = [("model",), ("training", "precision"), ("training", "optimizer")]
    differing = [path for path in needed if _at(recipe, path) != _at(ours, path)]
    if differing:
        listed = "; ".join(f"{'.'.join(path)}: {_at(recipe, path)}, here {_at(ours, path)}" for path in differing)
        raise UsageError(f"{source}: is of another training ({listed})")


def _at(document: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = document
    for name in path:
        value = value[name]
    return value


def _write(file: Path, content: Mapping[str, Any]) -> None:
    temporary = file.with_name(f".{file.name}.part")
    with temporary.open("wb") as opened:
        torch.save(dict(content), opened)
        opened.flush()
        os.fsync(opened.fileno())
    temporary.replace(file)


def _read(file: Path, device: Any) -> dict[str, Any]:
    """Return what `file` holds, on `device`; None: mapped, so that only what is copied of it is read."""
    try:
        content: dict[str, Any] = torch.load(file, map_location=device or "cpu", mmap=device is None, weights_only=True)
    except OSError as error:
        raise EnvironmentNotFit(
            f"{file}: {error.strerror or error}; copy the whole checkpoint to every machine"
        ) from None
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise UsageError(
            f"{file}: is damaged, or no file that --save-every wrote ({str(error).splitlines()[0]}); copy it anew"
        ) from None
    return content


def _random_numbers(device: Any) -> dict[str, torch.Tensor]:
    numbers = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        numbers["cuda"] = torch.cuda.get_rng_state(device)
    return numbers


def _set_random_numbers(numbers: Mapping[str, torch.Tensor], device: Any) -> None:
    torch.set_rng_state(numbers["cpu"].cpu())
    if device.type == "cuda" and "cuda" in numbers:
        torch.cuda.set_rng_state(numbers["cuda"].cpu(), device)


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"{target}: cannot be written: {error.strerror or error}") from error
