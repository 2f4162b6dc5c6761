"""What ends a step ends the run where the step lost the weights, with the reason."""

from __future__ import annotations

import msgspec
import pytest
import torch

from gradwire.documents.plan_schema import Plan
from gradwire.train.data import order_samples, read_text
from gradwire.train.engines.engine import StepResult
from gradwire.train.feed import Feed
from gradwire.train.loop import History, finish_step
from gradwire.train.setting import EveryRankFailed


def finish(plan: Plan, *, loss: float = 2.0, norm: float | None) -> None:
    text = read_text(None)
    feed = Feed(
        text=text,
        order=order_samples(text, sequence_length=8, seed=1, batch=plan.batch),
        sequence_length=8,
        device=torch.device("cpu"),
    )
    result = StepResult(
        loss_share=torch.tensor(loss),
        gradient_norm=None if norm is None else torch.tensor(norm),
        learning_rate=0.1,
        sequences=1,
    )
    finish_step(plan, feed, History(), [], result, 1.0, {}, writer=None, number=3)


def test_a_gradient_that_is_not_finite_ends_the_run_although_the_loss_is(plan: Plan) -> None:
    finish(plan, norm=1.0)
    finish(plan, norm=None)
    for norm in (float("nan"), float("inf")):
        with pytest.raises(EveryRankFailed, match="the gradient is not finite on 1 of 1 ranks in step 2"):
            finish(plan, norm=norm)
    with pytest.raises(EveryRankFailed, match="the loss is nan in step 2"):
        finish(plan, loss=float("nan"), norm=float("nan"))


def test_a_loss_scale_may_make_infinite_gradients(plan: Plan) -> None:
    training = msgspec.structs.replace(plan.recipe.training, precision="fp16-mixed")
    finish(
        msgspec.structs.replace(plan, recipe=msgspec.structs.replace(plan.recipe, training=training)), norm=float("inf")
    )
