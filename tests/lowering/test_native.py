"""How `torchrun` is started, and what plain torch cannot do."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import pytest

from gradwire.errors import CannotLower, UsageError
from gradwire.lowering import Placement, lower
from tests.lowering.drawing import METHOD, STRATEGY, lowered, plan


def test_one_machine_takes_a_free_port() -> None:
    command = lowered("native", {"training.num_gpus": 4}, device="cpu").report.command
    assert command == [
        *("torchrun", "--standalone", "--nnodes", "1", "--nproc-per-node", "4"),
        *("-m", "gradwire.train", "plan.json"),
    ]


def test_several_machines_meet_at_the_first() -> None:
    artifact = lowered("native", {"training.num_gpus": 16}, num_nodes=2, node_rank=1)
    assert " ".join(artifact.report.command) == (
        "torchrun --nnodes 2 --nproc-per-node 8 --node-rank 1 --master-addr 10.0.0.1 --master-port 29400 "
        "-m gradwire.train plan.json"
    )


def test_the_users_own_script_takes_the_place_of_the_trainer() -> None:
    command = lowered("native", program=("train.py", "--name", "two words")).report.command
    assert command[-3:] == ["train.py", "--name", "two words"]


@pytest.mark.parametrize("program", [(), ("--epochs", "1"), ("-m",)])
def test_a_program_that_is_no_script_is_refused(program: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="after -- a script is expected"):
        lowered("native", program=program)


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        (Placement(out_folder=PurePath("o")), "--rdzv HOST:PORT"),
        (Placement(out_folder=PurePath("o"), rendezvous="host"), "expected HOST:PORT"),
        (Placement(out_folder=PurePath("o"), rendezvous="host:70000"), "expected HOST:PORT"),
        (Placement(out_folder=PurePath("o"), rendezvous=":29500"), "expected HOST:PORT"),
        (Placement(out_folder=PurePath("o"), rendezvous="host:1", node_rank=2), "ranks 0 to 1"),
    ],
)
def test_a_placement_that_does_not_fit_is_refused(placement: Placement, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        lower(plan("native", num_nodes=2), placement=placement)


def test_an_ipv6_address_may_be_the_meeting_point() -> None:
    placement = Placement(out_folder=PurePath("o"), rendezvous="[fe80::1]:29500")
    command = lower(plan("native", num_nodes=2), placement=placement).report.command
    assert command[command.index("--master-addr") + 1] == "fe80::1"


@pytest.mark.parametrize(
    ("values", "path", "nearest"),
    [
        ({STRATEGY: "zero2"}, STRATEGY, "fsdp"),
        ({STRATEGY: "fsdp", METHOD: "powersgd"}, METHOD, "none"),
        (
            {STRATEGY: "fsdp", "communication.overlap.static_graph": True},
            "communication.overlap.static_graph",
            "left out",
        ),
    ],
)
def test_what_plain_torch_cannot_do_is_refused_with_the_nearest(
    values: dict[str, Any], path: str, nearest: str
) -> None:
    with pytest.raises(CannotLower, match=f"{path}.*nearest: .*{nearest}"):
        lowered("native", values)
