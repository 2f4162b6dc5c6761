"""The checks of the modules beside this one once more over nccl, with a GPU for each rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.communication.test_communication_ddp import MORE_WITH_FOUR_RANKS, WITH_FOUR_RANKS
from tests.communication.world import run_world

pytestmark = [pytest.mark.distributed, pytest.mark.gpu]

GPUS = len(list(Path("/dev").glob("nvidia[0-9]*")))
DDP = ("checks_ddp", "checks_local_sgd")


@pytest.mark.parametrize(
    ("checks", "ranks", "only"),
    [
        (("checks_parts",), 1, None),
        (("checks_methods",), 2, None),
        (DDP, 2, None),
        (DDP, 4, [*WITH_FOUR_RANKS, *MORE_WITH_FOUR_RANKS]),
    ],
    ids=["parts", "methods", "ddp", "ddp-four-ranks"],
)
def test_checks_over_nccl(checks: tuple[str, ...], ranks: int, only: list[str] | None) -> None:
    if ranks > GPUS:
        pytest.skip(f"nccl takes a GPU for each rank: {ranks} are needed, here are {GPUS}")
    files = [Path(__file__).with_name(f"{name}.py") for name in checks]
    wrong = {name: why for name, why in run_world(*files, ranks=ranks, only=only, device="cuda").items() if why}
    assert not wrong, "\n".join(f"{name}: {why}" for name, why in wrong.items())
