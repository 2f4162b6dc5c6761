"""Draws scaling efficiencies as bars of text, with their intervals and the borders of the grades."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradwire.measure.efficiency import ACCEPTABLE_FROM, GOOD_ABOVE

_BORDERS = (ACCEPTABLE_FROM, GOOD_ABOVE, 1.0)
_WIDEST = 60
# Beyond, a bar would squeeze all others; its text still says how much.
_LARGEST_SHARE = 1.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """An efficiency as a share of ideal; `low` and `high` are None without an interval, `text` stands at its end."""

    label: str
    share: float
    low: float | None
    high: float | None
    text: str


def bars_text(bars: Sequence[Bar], *, width: int) -> str:
    """Return one line for each bar below a line that names the borders, at most `width` columns; newline at the end.

    The bar reaches to the efficiency, the line across its end is the interval, dotted lines are the borders.
    """
    labels = max(len(bar.label) for bar in bars)
    texts = max(len(bar.text) for bar in bars)
    columns = max(10, min(_WIDEST, width - labels - texts - 4))
    largest = min(_LARGEST_SHARE, max([1.0, *(bar.share for bar in bars), *(bar.high or 0.0 for bar in bars)]))

    def place(share: float) -> int:
        return min(columns - 1, round(share / largest * (columns - 1)))

    scale = [" "] * (columns + 6)
    for border in _BORDERS:
        words = f"{border:.0%}".replace("%", " %") if border == 1.0 else f"{border * 100:.0f}"
        start = place(border) - len(words.removesuffix(" %")) // 2
        scale[start : start + len(words)] = list(words)
    lines = [f"{'Of ideal':<{labels}}  {''.join(scale).rstrip()}"]
    for bar in bars:
        cells = ["█" if column < place(bar.share) else " " for column in range(columns)]
        for border in _BORDERS:
            if cells[place(border)] == " ":
                cells[place(border)] = "┊"
        if bar.low is not None and bar.high is not None:
            first, last = place(bar.low), place(bar.high)
            cells[first : last + 1] = "│" if first == last else ["├", *"─" * (last - first - 1), "┤"]
        lines.append(f"{bar.label:<{labels}}  {''.join(cells)}  {bar.text:>{texts}}")
    return "".join(f"{line.rstrip()}\n" for line in lines)
