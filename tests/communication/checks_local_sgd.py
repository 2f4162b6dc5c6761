"""What `local-sgd` promises beyond what every method does; `test_communication_ddp.py` runs it."""

from __future__ import annotations

import pytest
import torch

from gradwire.errors import UsageError
from tests.communication.models import Run, everyone, settings


def check_local_steps_send_nothing_and_ranks_differ_until_they_synchronise() -> None:
    for method in ("local-sgd", "local-sgd-int8"):
        run = Run(settings(method, start_step=2, local_steps=3))
        sent, equal = [], []
        for step in range(8):
            run.train(step, step + 1)
            traffic = run.communication.last_step
            assert traffic is not None
            sent.append(traffic.wire_bytes)
            equal.append(all(torch.equal(other, run.parameters()) for other in everyone(run.parameters())))
        # Steps 0 and 1 average gradients; 2, 3, 4 and 5, 6, 7 are local, and the last of three synchronises.
        assert equal == [True, True, False, False, True, False, False, True], equal
        assert [size > 0 for size in sent] == equal, sent
        run.communication.close()


def check_local_sgd_with_one_local_step_of_plain_sgd_is_plain_ddp() -> None:
    """The mean of steps along each rank's gradient is the step along the mean gradient, without momentum."""
    plain, local = (
        Run(settings(method, start_step=0, local_steps=1, outer_learning_rate=1.0, outer_momentum=0.0))
        for method in ("none", "local-sgd")
    )
    for run in (plain, local):
        run.optimizer = torch.optim.SGD(run.model.parameters(), lr=0.05)
        run.train(0, 5)
    assert torch.allclose(plain.parameters(), local.parameters(), atol=1e-6)
    local.communication.close()


def check_the_outer_step_is_torchs_nesterov_on_the_mean_difference() -> None:
    run = Run(settings("local-sgd", start_step=0, local_steps=2, outer_learning_rate=0.7, outer_momentum=0.9))
    anchor = run.parameters().clone().requires_grad_()
    outer = torch.optim.SGD([anchor], lr=0.7, momentum=0.9, nesterov=True)
    for first in range(0, 6, 2):
        before = anchor.detach().clone()
        run.train(first, first + 1)
        run.communication.synchronise = lambda: None  # type: ignore[method-assign]
        alone = run.communication.step_ended
        run.communication.step_ended = lambda: None  # type: ignore[method-assign]
        run.train(first + 1, first + 2)
        difference = before - torch.stack(everyone(run.parameters())).mean(0)
        alone()
        run.communication.step_ended = alone  # type: ignore[method-assign]
        anchor.grad = difference
        outer.step()
        assert torch.allclose(run.parameters(), anchor.detach(), atol=1e-6), first
    run.communication.close()


def check_local_sgd_without_word_of_steps_is_refused() -> None:
    run = Run(settings("local-sgd", start_step=0))
    run.communication.step_ended = lambda: None  # type: ignore[method-assign]
    run.train(0, 1)
    with pytest.raises(UsageError, match="nobody said that an optimizer step has ended"):
        run.train(1, 2)
