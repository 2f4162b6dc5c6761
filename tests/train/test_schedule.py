"""The learning rate of each step is transformers' own, and moves with the steps that were really taken."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import get_scheduler

from gradwire.documents.recipe_schema import Scheduler, Training
from gradwire.recipe.learning_rate import learning_rate_factor
from gradwire.train.schedule import ScheduledLearningRate, learning_rate_of

MAX_STEPS = 12


def taken(training: Training, steps: int = MAX_STEPS + 3) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=training.learning_rate)
    schedule = ScheduledLearningRate(optimizer, training)
    rates = []
    for _ in range(steps):
        rates.append(learning_rate_of(optimizer))
        schedule.step()
    return rates


def transformers_rates(
    name: str, *, warmup: int, total: int, steps: int = MAX_STEPS + 3, **options: float
) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    scheduler = get_scheduler(
        name, optimizer, num_warmup_steps=warmup, num_training_steps=total, scheduler_specific_kwargs=options
    )
    rates = []
    for _ in range(steps):
        rates.append(float(scheduler.get_last_lr()[0]))
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize("warmup", [0, 1, 2, 5])
@pytest.mark.parametrize(
    ("kind", "theirs"), [("constant", "constant_with_warmup"), ("linear", "linear"), ("cosine", "cosine")]
)
def test_course_is_that_of_transformers(kind: str, theirs: str, warmup: int) -> None:
    scheduler = Scheduler(type=kind, warmup_steps=warmup)  # type: ignore[arg-type]
    training = Training(learning_rate=0.5, scheduler=scheduler, max_steps=MAX_STEPS)
    # After the end transformers' cosine rises again.
    expected = transformers_rates(theirs, warmup=warmup, total=MAX_STEPS, steps=MAX_STEPS)
    assert taken(training, MAX_STEPS) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_fall_ends_at_the_smallest_share_and_stays_there() -> None:
    scheduler = Scheduler(type="cosine", warmup_steps=3, total_steps=9, min_ratio=0.1)
    training = Training(learning_rate=0.5, scheduler=scheduler, max_steps=MAX_STEPS)
    rates = taken(training)
    expected = transformers_rates("cosine_with_min_lr", warmup=3, total=9, steps=9, min_lr_rate=0.1)
    assert rates[:9] == pytest.approx(expected, rel=1e-12)
    assert rates[9:] == pytest.approx([0.05] * (len(rates) - 9))


def test_linear_fall_to_a_share_is_a_line() -> None:
    scheduler = Scheduler(type="linear", warmup_steps=2, min_ratio=0.2)
    factors = [learning_rate_factor(scheduler, max_steps=12, step=step) for step in range(2, 13)]
    assert factors[0] == 1.0
    assert factors[-1] == pytest.approx(0.2)
    assert all(later - earlier == pytest.approx(-0.08) for earlier, later in itertools.pairwise(factors))


def test_groups_keep_their_own_largest_rates() -> None:
    groups = [{"params": [torch.zeros(1)]}, {"params": [torch.zeros(1)], "lr": 0.1}]
    optimizer = torch.optim.SGD(groups, lr=1.0)
    schedule = ScheduledLearningRate(optimizer, Training(scheduler=Scheduler(warmup_steps=4)))
    schedule.step()
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.025]


def test_constant_rate_is_left_to_whoever_owns_the_optimizer() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    schedule = ScheduledLearningRate(optimizer, Training())
    optimizer.param_groups[0]["lr"] = 7.0
    schedule.step()
    assert learning_rate_of(optimizer) == 7.0


SCRIPT = """
import sys, tempfile, torch
from gradwire.accelerate import from_recipe
overrides = ["training.gradient_accumulation=2", "training.scheduler={type: linear, warmup_steps: 2}",
             "training.max_steps=6", "training.learning_rate=0.5"]
def begin():
    run = from_recipe("cpu/ddp", overrides=overrides)
    model = run.adapt(torch.nn.Linear(4, 1))
    optimizer = run.optimizer(model.parameters())
    return run, *run.accelerator.prepare(model, optimizer)
def train(run, model, optimizer, micro_steps, step_outside):
    rates = []
    for micro_step in range(micro_steps):
        with run.accumulate(model):
            run.accelerator.backward(model(torch.ones(3, 4)).sum())
            run.clip(model)
            if not step_outside:
                rates.append(optimizer.param_groups[0]["lr"])
                optimizer.step()
                optimizer.zero_grad()
        if step_outside:
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            optimizer.zero_grad()
    return rates
each = [0.0, 0.25, 0.5, 0.375, 0.25, 0.125]
twice = [rate for rate in each for _ in range(2)]
assert train(*begin(), 12, False) == twice
assert train(*begin(), 12, True) == twice
run, model, optimizer = begin()
assert run.loss_weights([3, 1]) == [1.0, 1.0]
train(run, model, optimizer, 6, False)
folder = tempfile.mkdtemp()
run.accelerator.save_state(folder)
run, model, optimizer = begin()
run.accelerator.load_state(folder)
assert train(run, model, optimizer, 6, False) == twice[6:]
overrides += ["training.loss_weighting=token"]
assert begin()[0].loss_weights([3, 1]) == [1.5, 0.5]
"""


def test_script_of_ones_own_follows_the_recipe_and_resumes(tmp_path: Path) -> None:
    words = [sys.executable, "-c", SCRIPT]
    finished = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
    assert finished.returncode == 0, finished.stderr
