"""What each method promises of its saved state; `test_communication_ddp.py` runs it."""

from __future__ import annotations

import io

import pytest
import torch
import torch.distributed as dist

from gradwire.errors import UsageError
from tests.communication.models import (
    SEVEN_BUCKETS_MB,
    Run,
    assert_ranks_identical,
    everyone,
    for_each_method,
    hooked,
    settings,
)

STATEFUL = ("powersgd", "powersgd-alternating", "int8", "topk", "local-sgd-int8")


def check_a_resumed_run_equals_the_uninterrupted_one() -> None:
    def check(method: str) -> None:
        whole = Run(settings(method))
        whole.train(0, 7)
        saved = whole.save()
        whole.train(7, 12)
        resumed = Run(settings(method))
        assert resumed.load(saved) == ()
        resumed.train(7, 12)
        assert torch.equal(whole.parameters(), resumed.parameters()), "parameters differ"
        assert hooked(resumed).step == 12
        ours, theirs = whole.communication.state_dict(), resumed.communication.state_dict()
        assert ours["buckets"] == theirs["buckets"]
        for part in ("shared", "local"):
            for kind, table in ours[part].items():
                assert all(torch.equal(table[name], theirs[part][kind][name]) for name in table), f"{kind} differ"
        whole.communication.close()
        resumed.communication.close()

    for_each_method(check)


def check_a_run_resumed_before_its_start_step_equals_the_uninterrupted_one() -> None:
    for method in ("powersgd", "powersgd-alternating", "local-sgd"):
        whole = Run(settings(method, start_step=5))
        whole.train(0, 3)
        saved = whole.save()
        whole.train(3, 9)
        resumed = Run(settings(method, start_step=5))
        resumed.load(saved)
        resumed.train(3, 9)
        assert torch.equal(whole.parameters(), resumed.parameters()), method
        whole.communication.close()
        resumed.communication.close()


def check_a_resumed_run_may_have_other_buckets() -> None:
    def check(method: str) -> None:
        run = Run(settings(method))
        run.train(0, 5)
        resumed = Run(settings(method), bucket_cap_mb=3 * SEVEN_BUCKETS_MB)
        resumed.load(run.save())
        resumed.train(5, 9)
        assert_ranks_identical(resumed)
        run.communication.close()
        resumed.communication.close()

    for_each_method(check)


def check_state_of_another_world_keeps_the_shared_parts() -> None:
    def check(method: str) -> None:
        run = Run(settings(method))
        run.train(0, 5)
        state = run.communication.state_dict()
        shared = state["shared"]
        state |= {"world_size": 8, "rank": 7}
        resumed = Run(settings(method))
        notes = resumed.communication.load_state_dict(state)
        assert len(notes) == 1 and "are reset" in notes[0], notes
        assert hooked(resumed).step == 5
        loaded = resumed.communication.state_dict()
        assert all(not table for table in loaded["local"].values())
        for kind, table in shared.items():
            assert table and all(torch.equal(table[name], loaded["shared"][kind][name]) for name in table)
        resumed.train(5, 7)
        assert_ranks_identical(resumed)
        run.communication.close()
        resumed.communication.close()

    for_each_method(check, STATEFUL)


def check_states_of_different_steps_are_refused() -> None:
    run = Run(settings("powersgd"))
    run.train(0, 3)
    state = run.communication.state_dict()
    if dist.get_rank() == 0:
        state["synchronisations"] += 1
    with pytest.raises(UsageError, match="different runs or steps"):
        run.communication.load_state_dict(state)
    run.communication.close()


def check_state_of_another_method_is_set_aside() -> None:
    run = Run(settings("powersgd"))
    run.train(0, 3)
    other = Run(settings("int8"))
    (note,) = other.communication.load_state_dict(run.communication.state_dict())
    assert "powersgd is not used" in note
    run.communication.close()
    other.communication.close()


def check_the_state_is_plain_enough_to_load_safely() -> None:
    def check(method: str) -> None:
        run = Run(settings(method))
        run.train(0, 4)
        buffer = io.BytesIO()
        torch.save(run.communication.state_dict(), buffer)
        buffer.seek(0)
        state = torch.load(buffer, weights_only=True)
        assert state["method"] == settings(method).method and state["synchronisations"] == 4
        assert len(everyone(torch.tensor(state["rank"]))) == dist.get_world_size()
        run.communication.close()

    for_each_method(check)
