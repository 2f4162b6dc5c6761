"""The checks of the modules beside this one once more over nccl, with a GPU for each rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.communication.test_communication_ddp import CHECKS, MORE_WITH_FOUR_RANKS, WITH_FOUR_RANKS
from tests.communication.world import run_world

pytestmark = [pytest.mark.distributed, pytest.mark.gpu]

GPUS = len(list(Path("/dev").glob("nvidia[0-9]*")))


@pytest.mark.parametrize(
    ("checks", "ranks", "only"),
    [
        ([Path(__file__).with_name("checks_parts.py")], 1, None),
        ([Path(__file__).with_name("checks_methods.py")], 2, None),
        (CHECKS, 2, None),
        (CHECKS, 4, [*WITH_FOUR_RANKS, *MORE_WITH_FOUR_RANKS]),
    ],
    ids=["parts", "methods", "ddp", "ddp-four-ranks"],
)
def test_checks_over_nccl(checks: list[Path], ranks: int, only: list[str] | None) -> None:
    if ranks > GPUS:
        pytest.skip(f"nccl takes a GPU for each rank: {ranks} are needed, here are {GPUS}")
    wrong = {name: why for name, why in run_world(*checks, ranks=ranks, only=only, device="cuda").items() if why}
    assert not wrong, "\n".join(f"{name}: {why}" for name, why in wrong.items())
