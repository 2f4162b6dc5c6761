"""The comparison in a terminal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradwire.compare.table import comparison_text
from gradwire.documents.comparison_schema import Comparison

Make = Callable[..., Any]


def test_the_text_at_80_columns(example: tuple[Comparison, Any]) -> None:
    expected = (Path(__file__).parent / "example-80.txt").read_text(encoding="utf-8")
    assert comparison_text(example[0]) == expected


@pytest.mark.parametrize("width", [20, 80, 200])
def test_no_line_is_wider_than_the_terminal_and_no_figure_is_cut(example: tuple[Comparison, Any], width: int) -> None:
    text = comparison_text(example[0], width=width)
    assert max(len(line) for line in text.splitlines()) <= max(width, 80)
    assert "…" not in text


def test_large_figures_fit_80_columns(ran: Make, compared: Make) -> None:
    text = comparison_text(
        compared(
            *(
                ran("accelerate", size, seconds=1e-6 * size, process_bytes=999 * 2**30, losses=[20.0, 10.25])
                for size in (1, 2, 4, 1024)
            )
        )
    )
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_what_is_piped_has_no_control_codes(example: tuple[Comparison, Any]) -> None:
    assert "\x1b" not in comparison_text(example[0])
    assert "\x1b[32m" not in comparison_text(example[0])
    assert "\x1b[33macceptable" in comparison_text(example[0], colour=True)


def test_a_failed_cell_has_its_reason_below_the_table(example: tuple[Comparison, Any]) -> None:
    table, _, below = comparison_text(example[0]).partition("Failed or not comparable:")
    assert "failed" in table
    assert "rank 3 was killed by signal 9" not in table
    assert "deepspeed on 4 (failed): rank 3 was killed by signal 9" in below


def test_a_reason_is_shown_as_it_is(failed: Make, compared: Make) -> None:
    text = comparison_text(compared(failed(reason="ranks [red]0[/red] and :smile: in {x}")))
    assert "ranks [red]0[/red] and :smile: in {x}" in text


def test_slow_steps_are_shown_in_seconds(ran: Make, compared: Make) -> None:
    text = comparison_text(compared(ran(seconds=65.0)))
    assert "Step, s" in text
    assert "65.0/65.0" in text
