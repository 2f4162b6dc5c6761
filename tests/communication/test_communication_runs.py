"""Whole runs end: a killed rank ends the others with a message, and repeated runs never hang."""

from __future__ import annotations

import pytest

from tests.communication.soak import launch

pytestmark = pytest.mark.distributed


def test_a_killed_rank_ends_the_others_with_a_message() -> None:
    command = ["--methods", "powersgd", "--kill-rank", "1", "--steps", "100", "--timeout", "60"]
    ended = launch(command, ranks=3, timeout=120)
    assert ended[1][0] == -9
    for rank in (0, 2):
        code, output = ended[rank]
        assert code not in (0, -9), output
        assert f"gradient communication (powersgd) failed on rank {rank} of 3" in output
        assert "rank 1 has died" in output


def test_a_world_of_one_rank_trains() -> None:
    ((code, output),) = launch(["--runs", "15", "--steps", "6"], ranks=1, timeout=120)
    assert code == 0, output


@pytest.mark.soak
def test_repeated_runs_never_hang() -> None:
    for ranks in (2, 4):
        ended = launch(["--runs", "15"], ranks=ranks, timeout=250)
        assert all(code == 0 for code, _ in ended), ended
