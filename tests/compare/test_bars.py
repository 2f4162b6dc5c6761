"""Efficiencies as bars of text."""

from __future__ import annotations

import pytest

from gradwire.compare.bars import Bar, bars_text

BARS = [
    Bar(label="native on 2", share=0.92, low=0.90, high=0.95, text="92.0 %"),
    Bar(label="native on 16", share=0.5, low=None, high=None, text="50.0 %"),
]


def test_a_bar_reaches_to_its_share_and_shows_its_interval_and_the_borders() -> None:
    scale, first, second = bars_text(BARS, width=80).splitlines()
    assert scale.split() == ["Of", "ideal", "70", "85", "100", "%"]
    assert "├──┤" in first
    assert first.endswith("┊  92.0 %")
    assert second.count("┊") == 3
    assert second.count("█") == pytest.approx(first.index("├") / 2, abs=8)


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_no_line_is_wider_than_asked(width: int) -> None:
    lines = bars_text([*BARS, Bar(label="x", share=7.0, low=0.1, high=1e9, text="700 %")], width=width).splitlines()
    assert max(len(line) for line in lines) <= max(width, 40)
