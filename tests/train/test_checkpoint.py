"""A checkpoint counts once all of it is written, and what is no checkpoint is refused in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from gradwire.documents.plan_schema import Plan
from gradwire.errors import UsageError
from gradwire.train.checkpoint import load_checkpoint, save_checkpoint
from gradwire.train.setting import Place
from gradwire.train.training_state import Form, Saved

ALONE = Place(rank=0, local_rank=0, world_size=1, launched=False)
CPU = torch.device("cpu")


class Numbers:
    """A state of two numbers; the process is killed in the middle of saving where `dies` says so."""

    form: Form = "whole"

    def __init__(self, number: float = 0.0, *, dies: bool = False) -> None:
        self.number, self.dies = number, dies

    def make_ranks_equal(self) -> None:
        pass

    def shared(self) -> dict[str, Any]:
        return {"number": torch.tensor(self.number)}

    def own(self) -> dict[str, Any]:
        if self.dies:
            raise KeyboardInterrupt
        return {"number": torch.tensor(self.number)}

    def load(self, saved: Saved) -> list[str]:
        self.number = float(saved.shared["number"]) + float(saved.own["number"])
        return []

    def continue_from(self, step: int) -> None:
        pass


def save(folder: Path, plan: Plan, step: int, state: Numbers) -> None:
    save_checkpoint(folder, state, plan, ALONE, step=step, device=CPU)


def test_a_run_killed_while_it_replaces_a_checkpoint_leaves_the_one_before(tmp_path: Path, plan: Plan) -> None:
    save(tmp_path, plan, 1, Numbers(1.0))
    save(tmp_path, plan, 2, Numbers(2.0))
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, plan, 2, Numbers(20.0, dies=True))
    found = Numbers()
    assert load_checkpoint(tmp_path, found, plan, ALONE, device=CPU).step == 1
    assert found.number == 2.0
    save(tmp_path, plan, 2, Numbers(3.0))
    assert load_checkpoint(tmp_path, found, plan, ALONE, device=CPU).step == 2
    assert found.number == 6.0


def test_a_run_that_begins_anew_beside_a_longer_ones_checkpoints_goes_on_from_its_own(
    tmp_path: Path, plan: Plan
) -> None:
    for step in (8, 9, 1):
        save(tmp_path, plan, step, Numbers(float(step)))
    assert load_checkpoint(tmp_path, Numbers(), plan, ALONE, device=CPU).step == 1
    save(tmp_path, plan, 2, Numbers(2.0))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000001", "step-00000002"]


def test_what_cannot_be_resumed_is_said(tmp_path: Path, plan: Plan) -> None:
    save(tmp_path, plan, plan.recipe.training.max_steps, Numbers())
    with pytest.raises(UsageError, match="nothing is left to train; set max_steps higher"):
        load_checkpoint(tmp_path, Numbers(), plan, ALONE, device=CPU)
    assert plan.recipe.model is not None
    wider = msgspec.structs.replace(plan.recipe, model=msgspec.structs.replace(plan.recipe.model, hidden_size=96))
    with pytest.raises(UsageError, match=r"is of another training \(model: "):
        load_checkpoint(tmp_path, Numbers(), msgspec.structs.replace(plan, recipe=wider), ALONE, device=CPU)
    in_parts = Numbers()
    in_parts.form = "split"
    with pytest.raises(UsageError, match="written under plain ddp, and this run trains under fsdp or a pipeline"):
        load_checkpoint(tmp_path, in_parts, plan, ALONE, device=CPU)
    with pytest.raises(UsageError, match="holds no complete checkpoint"):
        load_checkpoint(tmp_path / "elsewhere", Numbers(), plan, ALONE, device=CPU)


def test_a_damaged_file_is_named(tmp_path: Path, plan: Plan) -> None:
    save(tmp_path, plan, 1, Numbers(1.0))
    file = tmp_path / "step-00000001" / "rank-0.pt"
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(UsageError, match=r"rank-0.pt: is damaged"):
        load_checkpoint(tmp_path, Numbers(), plan, ALONE, device=CPU)


def test_code_in_a_file_is_not_run(tmp_path: Path, plan: Plan) -> None:
    save(tmp_path, plan, 1, Numbers(1.0))
    torch.save({"number": Numbers(1.0)}, tmp_path / "step-00000001" / "shared.pt")
    with pytest.raises(UsageError, match=r"shared.pt: is damaged, or no file that --save-every wrote"):
        load_checkpoint(tmp_path, Numbers(), plan, ALONE, device=CPU)
