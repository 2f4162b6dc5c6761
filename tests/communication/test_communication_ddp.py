"""Each method keeps its promises under DDP: with 2 ranks, and with 4 those that depend on the number."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.communication.world import check_names, run_world

CHECKS = [Path(__file__).with_name(f"checks_{name}.py") for name in ("ddp", "resume", "local_sgd", "backward")]

pytestmark = pytest.mark.distributed


WITH_FOUR_RANKS = [
    "check_ranks_are_identical_with_seven_buckets",
    "check_uncompressed_steps_equal_plain_ddp",
    "check_bytes_are_counted",
    "check_groups_of_ranks_train_side_by_side",
]
MORE_WITH_FOUR_RANKS = ["check_unused_parameters", "check_a_resumed_run_equals_the_uninterrupted_one"]


@pytest.fixture(scope="module")
def two_ranks() -> dict[str, str]:
    return run_world(*CHECKS, ranks=2)


@pytest.fixture(scope="module")
def four_ranks() -> dict[str, str]:
    return run_world(*CHECKS, ranks=4, only=WITH_FOUR_RANKS)


@pytest.mark.parametrize("name", [*check_names(*CHECKS), "exit codes"])
def test_ddp_with_two_ranks(two_ranks: dict[str, str], name: str) -> None:
    assert not two_ranks[name], two_ranks[name]


@pytest.mark.parametrize("name", [*WITH_FOUR_RANKS, "exit codes"])
def test_ddp_with_four_ranks(four_ranks: dict[str, str], name: str) -> None:
    assert not four_ranks[name], four_ranks[name]


@pytest.mark.soak
def test_more_of_ddp_with_four_ranks() -> None:
    for name, wrong in run_world(*CHECKS, ranks=4, only=MORE_WITH_FOUR_RANKS).items():
        assert not wrong, f"{name}: {wrong}"
